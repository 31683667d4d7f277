-- The metrics of chosen.txt that the language cannot express, as near as they can be written: what they lack, the code that
-- refuses them, and why.

-- name: azure_time_on_feature
-- class: sequences
-- code: HDL-103
-- reason: each end with the last start before it; PATTERN counts every pair
SELECT user_id, sum(action_time - lag(action_time) OVER (PARTITION BY user_id ORDER BY action_time)) AS seconds
FROM actions WINDOW RANGE '1 hour' ON action_time WHERE kind IN ('start', 'end') GROUP BY user_id;

-- name: azure_mean_without_duplicates
-- class: queries over answers
-- code: HDL-103
-- reason: a mean over distinct readings; event_id in streams.yaml leaves an event out that comes again
SELECT device, avg(reading) AS mean_reading FROM (SELECT DISTINCT device, sensed_at, reading FROM ovens)
WINDOW RANGE '5 minutes' ON sensed_at GROUP BY device;

-- name: prometheus_job_requests_rate
-- class: queries over answers
-- code: HDL-105
-- reason: the sum of the rates of instances: an aggregate over aggregates
SELECT job, sum(rate(requests)) AS requests_per_second FROM counters
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON scraped_at GROUP BY job;

-- name: prometheus_absent
-- class: windows without events
-- code: HDL-104
-- reason: a window without events has no answer
SELECT absent_over_time(requests) AS silent FROM counters WINDOW RANGE '10 minutes' SLIDE '1 minute' ON scraped_at
WHERE job = 'a';

-- name: timescale_gapfill
-- class: windows without events
-- code: HDL-104
-- reason: a window without events has no answer; `heddle read --fill 0` prints rows for groups without one
SELECT time_bucket_gapfill('1 day', trade_time) AS day, sum(volume) AS volume FROM trades
WINDOW RANGE '1 day' ON trade_time GROUP BY time_bucket_gapfill('1 day', trade_time);

-- name: timescale_uptime
-- class: aggregates
-- code: HDL-104
-- reason: time between events up to a limit each
SELECT device, heartbeat_agg(reading_time, '10 minutes') AS seconds FROM readings
WINDOW RANGE '1 day' ON reading_time GROUP BY device;

-- name: energy_weekdays
-- class: queries over answers
-- code: HDL-103
-- reason: a median over the sums of days
SELECT day, median(kwh) AS typical FROM
(SELECT dayofweek(measured_at) AS day, sum(kwh) AS kwh FROM meters WINDOW RANGE '1 day' ON measured_at)
WINDOW RANGE '365 days' SLIDE '1 day' ON measured_at GROUP BY day;

-- name: questdb_bollinger
-- class: queries over answers
-- code: HDL-103
-- reason: a mean over the last prices of quarter hours
SELECT symbol, avg(close) AS sma20, stddev_pop(close) AS deviation FROM
(SELECT symbol, last(price) AS close FROM trades WINDOW RANGE '15 minutes' ON trade_time GROUP BY symbol)
WINDOW RANGE '5 hours' SLIDE '15 minutes' ON trade_time GROUP BY symbol;

-- name: questdb_ride_durations
-- class: sequences
-- code: HDL-103
-- reason: each unlocking with the first locking after it; PATTERN counts every pair
SELECT device, count(*) AS rides,
  sum(lead(reading_time) OVER (PARTITION BY device ORDER BY reading_time) - reading_time) AS seconds
FROM readings WINDOW RANGE '1 month' ON reading_time WHERE status = 'open' GROUP BY device;

-- name: cube_bounce_rate
-- class: sessions
-- code: HDL-121
-- reason: an aggregate over answers of sessions
SELECT 100.0 * count_if(events = 1) / count(*) AS bounce_rate FROM
(SELECT user_id, count(*) AS events FROM actions GROUP BY session_window(action_time, '30 minutes'), user_id)
WINDOW RANGE '1 day' ON action_time;

-- name: cube_median_product_sales
-- class: queries over answers
-- code: HDL-103
-- reason: a median over the sums of products
SELECT zipcode, median(sales) AS median_sales FROM
(SELECT zipcode, product_id, sum(amount) AS sales FROM orders WINDOW RANGE '1 day' ON order_time
 GROUP BY zipcode, product_id) WINDOW RANGE '1 day' ON order_time GROUP BY zipcode;

-- name: confluent_rising_five
-- class: sequences
-- code: HDL-104
-- reason: a condition between each event and the one before
SELECT device, is_rising(temperature) AS rising FROM readings
WINDOW ROWS 5 SLIDE 1 PARTITION BY device ON reading_time GROUP BY device;

-- name: hopsworks_exponential_average
-- class: aggregates
-- code: HDL-104
-- reason: each value depends on the one before
SELECT symbol, ema(price, 0.2) AS ema_02 FROM trades WINDOW ROWS 30 SLIDE 1 PARTITION BY symbol ON trade_time
GROUP BY symbol;

-- name: risingwave_unusual_volume
-- class: events as answers
-- code: HDL-207
-- reason: it answers events and not groups
SELECT symbol, volume, volume > 1.5 * avg(volume) OVER (PARTITION BY symbol) AS unusual FROM trades
WINDOW RANGE '10 minutes' ON trade_time;

-- name: risingwave_spoofing
-- class: queries over answers
-- code: HDL-103
-- reason: the sum of a window by the mean of the sums of all windows
SELECT symbol, sum(volume) < 0.8 * avg(sum(volume)) OVER (PARTITION BY symbol) AS potential_spoofing FROM trades
WINDOW RANGE '10 minutes' ON trade_time GROUP BY symbol;

-- name: sigma_guessed_password
-- class: sequences
-- code: HDL-103
-- reason: a sequence whose first part is a count of its own
SELECT account, count(*) AS guessed FROM logins PATTERN SEQ(many_failed, success) ON
(SELECT account, 'many_failed' AS outcome FROM logins WINDOW RANGE '1 hour' ON login_time) PARTITION BY account
WINDOW RANGE '1 hour' SLIDE '1 minute' ON login_time GROUP BY account;

-- name: beam_spammy_users
-- class: queries over answers
-- code: HDL-103
-- reason: the sum of a user by the mean of the sums of all users
SELECT user_id, sum(score) AS score FROM plays WINDOW RANGE '1 hour' ON played_at GROUP BY user_id
HAVING sum(score) > 2.5 * (SELECT avg(score) FROM plays);

-- name: beam_session_lengths
-- class: sessions
-- code: HDL-121
-- reason: an aggregate over sessions
SELECT avg(seconds) AS mean_seconds FROM
(SELECT user_id, max(played_at) - min(played_at) AS seconds FROM plays
 GROUP BY session_window(played_at, '5 minutes'), user_id)
WINDOW RANGE '1 hour' ON played_at;

-- name: looker_percent_of_total
-- class: queries over answers
-- code: HDL-103
-- reason: the sum of a group by that of all groups; GROUPING SETS has both as rows
SELECT category, 100.0 * sum(amount) / sum(sum(amount)) OVER () AS percentage FROM orders
WINDOW RANGE '1 day' ON order_time GROUP BY category;

-- name: siddhi_undelivered
-- class: sequences
-- code: HDL-220
-- reason: an event that does not come
SELECT user_id, count(*) AS undelivered FROM actions PATTERN SEQ(buy, NOT delivery) ON kind PARTITION BY user_id
WINDOW RANGE '15 minutes' SLIDE '1 minute' ON action_time GROUP BY user_id;
