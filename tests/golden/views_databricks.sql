CREATE OR REPLACE VIEW `mart`.`answers`.`team_a_typed` AS
SELECT
  r.`window_start` AS `window_start`,
  r.`window_end` AS `window_end`,
  GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 0) AS `text`,
  CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 1) AS BIGINT) AS `small`,
  CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 2) AS BIGINT) AS `whole`,
  CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 3) AS BOOLEAN) AS `truth`,
  CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 4) AS DATE) AS `day`,
  TIMESTAMP_MICROS(CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 5) AS BIGINT)) AS `moment`,
  CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 6) AS DECIMAL(10, 2)) AS `money`,
  CAST(GET(FROM_JSON(r.`key`, 'ARRAY<STRING>'), 7) AS DECIMAL(38, 10)) AS `wide`,
  TRY_ELEMENT_AT(r.`texts`, 1) AS `max_text`,
  TRY_ELEMENT_AT(r.`longs`, 1) AS `max_small`,
  TRY_ELEMENT_AT(r.`longs`, 2) AS `max_whole`,
  TRY_ELEMENT_AT(r.`longs`, 3) <> 0 AS `max_truth`,
  DATE_FROM_UNIX_DATE(CAST(TRY_ELEMENT_AT(r.`longs`, 4) AS INT)) AS `max_day`,
  TIMESTAMP_MICROS(TRY_ELEMENT_AT(r.`longs`, 5)) AS `max_moment`,
  CAST(TRY_ELEMENT_AT(r.`texts`, 2) AS DECIMAL(10, 2)) AS `max_money`,
  CAST(TRY_ELEMENT_AT(r.`texts`, 3) AS DECIMAL(38, 10)) AS `max_wide`,
  TRY_ELEMENT_AT(r.`doubles`, 1) AS `max_real`,
  r.`revision` AS `revision`,
  r.`error` AS `error`
FROM `lake`.`heddle`.`results` AS r
WHERE
  r.`query` = 'team-a.typed' AND r.`fingerprint` = '…'
