CREATE OR REPLACE VIEW "mart"."answers"."team-a.typed" AS
SELECT
  r."window_start" AS "window_start",
  r."window_end" AS "window_end",
  JSON_EXTRACT_SCALAR(r."key", '$[0]') AS "text",
  CAST(JSON_EXTRACT_SCALAR(r."key", '$[1]') AS BIGINT) AS "small",
  CAST(JSON_EXTRACT_SCALAR(r."key", '$[2]') AS BIGINT) AS "whole",
  CAST(JSON_EXTRACT_SCALAR(r."key", '$[3]') AS BOOLEAN) AS "truth",
  CAST(JSON_EXTRACT_SCALAR(r."key", '$[4]') AS DATE) AS "day",
  CAST(FROM_UNIXTIME_NANOS(
    CAST(CAST(JSON_EXTRACT_SCALAR(r."key", '$[5]') AS BIGINT) AS DECIMAL(38, 0)) * 1000
  ) AS TIMESTAMP(6) WITH TIME ZONE) AS "moment",
  CAST(JSON_EXTRACT_SCALAR(r."key", '$[6]') AS DECIMAL(10, 2)) AS "money",
  CAST(JSON_EXTRACT_SCALAR(r."key", '$[7]') AS DECIMAL(38, 10)) AS "wide",
  ELEMENT_AT(r."texts", 1) AS "max_text",
  ELEMENT_AT(r."longs", 1) AS "max_small",
  ELEMENT_AT(r."longs", 2) AS "max_whole",
  ELEMENT_AT(r."longs", 3) <> 0 AS "max_truth",
  DATE_ADD('DAY', CAST(ELEMENT_AT(r."longs", 4) AS BIGINT), CAST('1970-01-01' AS DATE)) AS "max_day",
  CAST(FROM_UNIXTIME_NANOS(CAST(ELEMENT_AT(r."longs", 5) AS DECIMAL(38, 0)) * 1000) AS TIMESTAMP(6) WITH TIME ZONE) AS "max_moment",
  CAST(ELEMENT_AT(r."texts", 2) AS DECIMAL(10, 2)) AS "max_money",
  CAST(ELEMENT_AT(r."texts", 3) AS DECIMAL(38, 10)) AS "max_wide",
  ELEMENT_AT(r."doubles", 1) AS "max_real",
  r."revision" AS "revision",
  r."error" AS "error"
FROM "lake"."heddle"."results" AS r
WHERE
  r."query" = 'team-a.typed' AND r."fingerprint" = '…'
