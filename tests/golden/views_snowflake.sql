CREATE OR REPLACE VIEW "mart"."answers"."team-a.typed" AS
SELECT
  r."window_start" AS "window_start",
  r."window_end" AS "window_end",
  JSON_EXTRACT_PATH_TEXT(r."key", '[0]') AS "text",
  CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[1]') AS BIGINT) AS "small",
  CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[2]') AS BIGINT) AS "whole",
  CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[3]') AS BOOLEAN) AS "truth",
  CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[4]') AS DATE) AS "day",
  DATEADD(
    MICROSECOND,
    CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[5]') AS BIGINT),
    CAST('1970-01-01 00:00:00 +00:00' AS TIMESTAMPTZ)
  ) AS "moment",
  CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[6]') AS DECIMAL(10, 2)) AS "money",
  CAST(JSON_EXTRACT_PATH_TEXT(r."key", '[7]') AS DECIMAL(38, 10)) AS "wide",
  CAST(r."texts"[0] AS VARCHAR) AS "max_text",
  CAST(r."longs"[0] AS BIGINT) AS "max_small",
  CAST(r."longs"[1] AS BIGINT) AS "max_whole",
  CAST(r."longs"[2] AS BIGINT) <> 0 AS "max_truth",
  DATEADD(DAY, CAST(r."longs"[3] AS BIGINT), CAST('1970-01-01' AS DATE)) AS "max_day",
  DATEADD(
    MICROSECOND,
    CAST(r."longs"[4] AS BIGINT),
    CAST('1970-01-01 00:00:00 +00:00' AS TIMESTAMPTZ)
  ) AS "max_moment",
  CAST(CAST(r."texts"[1] AS VARCHAR) AS DECIMAL(10, 2)) AS "max_money",
  CAST(CAST(r."texts"[2] AS VARCHAR) AS DECIMAL(38, 10)) AS "max_wide",
  CAST(r."doubles"[0] AS DOUBLE) AS "max_real",
  r."revision" AS "revision",
  r."error" AS "error"
FROM "lake"."heddle"."results" AS r
WHERE
  r."query" = 'team-a.typed' AND r."fingerprint" = '…'
