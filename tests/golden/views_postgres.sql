CREATE OR REPLACE VIEW "mart"."answers"."team-a.typed" AS
SELECT
  r."window_start" AS "window_start",
  r."window_end" AS "window_end",
  JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '0') AS "text",
  CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '1') AS BIGINT) AS "small",
  CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '2') AS BIGINT) AS "whole",
  CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '3') AS BOOLEAN) AS "truth",
  CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '4') AS DATE) AS "day",
  CAST('1970-01-01 00:00:00+00' AS TIMESTAMPTZ) + DIV(CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '5') AS BIGINT), 1000000) * INTERVAL '1 SECOND' + CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '5') AS BIGINT) % 1000000 * INTERVAL '1 MICROSECOND' AS "moment",
  CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '6') AS DECIMAL(10, 2)) AS "money",
  CAST(JSON_EXTRACT_PATH_TEXT(CAST(r."key" AS JSON), '7') AS DECIMAL(38, 10)) AS "wide",
  r."texts"[1] AS "max_text",
  r."longs"[1] AS "max_small",
  r."longs"[2] AS "max_whole",
  r."longs"[3] <> 0 AS "max_truth",
  CAST('1970-01-01' AS DATE) + CAST(r."longs"[4] AS INT) AS "max_day",
  CAST('1970-01-01 00:00:00+00' AS TIMESTAMPTZ) + DIV(r."longs"[5], 1000000) * INTERVAL '1 SECOND' + r."longs"[5] % 1000000 * INTERVAL '1 MICROSECOND' AS "max_moment",
  CAST(r."texts"[2] AS DECIMAL(10, 2)) AS "max_money",
  CAST(r."texts"[3] AS DECIMAL(38, 10)) AS "max_wide",
  r."doubles"[1] AS "max_real",
  r."revision" AS "revision",
  r."error" AS "error"
FROM "lake"."heddle"."results" AS r
WHERE
  r."query" = 'team-a.typed' AND r."fingerprint" = '…'
