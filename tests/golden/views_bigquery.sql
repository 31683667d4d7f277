CREATE OR REPLACE VIEW `mart`.`answers`.`team_a_typed` AS
SELECT
  r.`window_start` AS `window_start`,
  r.`window_end` AS `window_end`,
  JSON_EXTRACT_SCALAR(r.`key`, '$[0]') AS `text`,
  CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[1]') AS INT64) AS `small`,
  CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[2]') AS INT64) AS `whole`,
  CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[3]') AS BOOL) AS `truth`,
  CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[4]') AS DATE) AS `day`,
  TIMESTAMP_MICROS(CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[5]') AS INT64)) AS `moment`,
  CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[6]') AS NUMERIC) AS `money`,
  CAST(JSON_EXTRACT_SCALAR(r.`key`, '$[7]') AS BIGNUMERIC) AS `wide`,
  r.`texts`[SAFE_OFFSET(0)] AS `max_text`,
  r.`longs`[SAFE_OFFSET(0)] AS `max_small`,
  r.`longs`[SAFE_OFFSET(1)] AS `max_whole`,
  r.`longs`[SAFE_OFFSET(2)] <> 0 AS `max_truth`,
  DATE_FROM_UNIX_DATE(r.`longs`[SAFE_OFFSET(3)]) AS `max_day`,
  TIMESTAMP_MICROS(r.`longs`[SAFE_OFFSET(4)]) AS `max_moment`,
  CAST(r.`texts`[SAFE_OFFSET(1)] AS NUMERIC) AS `max_money`,
  CAST(r.`texts`[SAFE_OFFSET(2)] AS BIGNUMERIC) AS `max_wide`,
  r.`doubles`[SAFE_OFFSET(0)] AS `max_real`,
  r.`revision` AS `revision`,
  r.`error` AS `error`
FROM `lake`.`heddle`.`results` AS r
WHERE
  r.`query` = 'team-a.typed' AND r.`fingerprint` = '…'
