CREATE OR REPLACE VIEW "mart"."answers"."team-a.typed" AS
SELECT
  r."window_start" AS "window_start",
  r."window_end" AS "window_end",
  r."key" ->> '$[0]' AS "text",
  CAST(r."key" ->> '$[1]' AS BIGINT) AS "small",
  CAST(r."key" ->> '$[2]' AS BIGINT) AS "whole",
  CAST(r."key" ->> '$[3]' AS BOOLEAN) AS "truth",
  CAST(r."key" ->> '$[4]' AS DATE) AS "day",
  MAKE_TIMESTAMPTZ(CAST(r."key" ->> '$[5]' AS BIGINT)) AS "moment",
  CAST(r."key" ->> '$[6]' AS DECIMAL(10, 2)) AS "money",
  CAST(r."key" ->> '$[7]' AS DECIMAL(38, 10)) AS "wide",
  r."texts"[1] AS "max_text",
  r."longs"[1] AS "max_small",
  r."longs"[2] AS "max_whole",
  r."longs"[3] <> 0 AS "max_truth",
  CAST('1970-01-01' AS DATE) + CAST(r."longs"[4] AS INT) AS "max_day",
  MAKE_TIMESTAMPTZ(r."longs"[5]) AS "max_moment",
  CAST(r."texts"[2] AS DECIMAL(10, 2)) AS "max_money",
  CAST(r."texts"[3] AS DECIMAL(38, 10)) AS "max_wide",
  r."doubles"[1] AS "max_real",
  r."revision" AS "revision",
  r."error" AS "error"
FROM "lake"."heddle"."results" AS r
WHERE
  r."query" = 'team-a.typed' AND r."fingerprint" = '…'
