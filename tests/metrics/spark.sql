-- The corpus' metrics of Spark in its own SQL, with our columns: `heddle import` has to write the same queries.
CREATE OR REPLACE TEMPORARY VIEW tokens AS SELECT ts AS event_time, word AS token FROM words;

INSERT INTO spark_word_counts
SELECT window.start, window.end, token AS word, count(*) AS words
FROM tokens GROUP BY window(event_time, '10 minutes', '5 minutes'), token;

CREATE TABLE spark_tumbling_counts USING delta AS
SELECT source, window.start, window.end, count(*) AS n FROM words
GROUP BY source, window(ts, '5 minutes') ORDER BY source, start;

CREATE VIEW spark_device_signal AS
WITH strong AS (SELECT * FROM readings WHERE signal > 10)
SELECT device_type, avg(signal) AS mean_signal, count(DISTINCT device) AS devices
FROM strong s GROUP BY device_type, window(s.reading_time, '10 minutes', '1 minute');

INSERT OVERWRITE spark_even_counts
SELECT window(reading_time, '1 hour', '10 minutes') AS w, device, count_if(battery % 2 = 0) AS even,
  count_if(battery IS NULL) AS missing
FROM readings GROUP BY 1, 2;

INSERT INTO spark_latency_percentiles
SELECT r.host, approx_percentile(r.latency, array(0.5, 0.9, 0.99), 100) AS latencies
FROM web.requests AS r GROUP BY window(r.request_time, '15 minutes', '5 minutes'), r.host;

INSERT INTO TABLE spark_distinct_users (from_time, region, users)
SELECT window.start, region, approx_count_distinct(user_id, 0.02)
FROM pageviews GROUP BY window(view_time, '1 day', '1 hour'), region;

INSERT INTO spark_user_sketches
SELECT region, hll_sketch_agg(user_id, 12) AS users FROM pageviews GROUP BY window(view_time, INTERVAL 1 HOUR), region;

INSERT INTO spark_price_slope
SELECT city, regr_slope(fare, distance) AS slope, regr_intercept(fare, distance) AS base, regr_r2(fare, distance) AS fit
FROM taxi_trips GROUP BY city, window(completed_at, '1 day', '6 hours');

INSERT INTO spark_fare_histogram
SELECT city, histogram_numeric(fare, 5) AS fares FROM taxi_trips GROUP BY city, window(completed_at, '1 day');

INSERT INTO spark_device_extremes
SELECT location, max_by(device, temperature) AS hottest, min_by(device, temperature) AS coldest
FROM (SELECT location, device, temperature, reading_time AS at FROM readings) AS r
GROUP BY window(at, '30 minutes', '10 minutes'), location;

-- name: spark_session_counts
SELECT user_id, count(*) AS events FROM actions GROUP BY session_window(action_time, '5 minutes'), user_id;
