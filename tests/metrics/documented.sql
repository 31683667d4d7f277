-- The metrics of chosen.txt that the language can express. Where they are from and what they are is said there.
-- Columns and names are our own. Before a query that needs more than 120 events to have an answer: how many.

-- ---------------------------------------------------------------------------- Azure Stream Analytics
-- name: azure_weight_by_make
SELECT make, sum(CAST(weight AS long)) AS weight FROM tolls WINDOW RANGE '10 seconds' ON entry_time GROUP BY make;

-- name: azure_cars_passed
SELECT make, CASE WHEN count(*) = 1 THEN concat('1 ', make) ELSE concat(CAST(count(*) AS string), ' ', make, 's') END
  AS cars_passed
FROM tolls WINDOW RANGE '10 seconds' ON entry_time GROUP BY make;

-- name: azure_busy_makes
SELECT make, count(*) AS cars FROM tolls WINDOW RANGE '10 seconds' ON entry_time GROUP BY make HAVING cars >= 3;

-- name: azure_distinct_makes
SELECT count(DISTINCT make) AS makes FROM tolls WINDOW RANGE '2 seconds' ON entry_time;

-- name: azure_make_changed
SELECT last(make) AS make, first(make) AS make_before FROM tolls WINDOW ROWS 2 SLIDE 1 ON entry_time
HAVING first(make) <> last(make);

-- name: azure_first_car
SELECT make, min_by(plate, entry_time) AS plate, min(entry_time) AS entered FROM tolls
WINDOW RANGE '10 minutes' ON entry_time GROUP BY make;

-- name: azure_last_car
SELECT max_by(plate, entry_time) AS plate, max_by(make, entry_time) AS make, max(entry_time) AS entered FROM tolls
WINDOW RANGE '10 minutes' ON entry_time;

-- name: azure_overweight_time
SELECT time_while(CAST(weight AS long) > 20000) AS seconds FROM tolls WINDOW RANGE '1 day' ON entry_time;

-- name: azure_last_reading
SELECT device, max_by(reading, sensed_at) AS reading, max(sensed_at) AS seen FROM ovens
WINDOW RANGE '300 seconds' SLIDE '5 seconds' ON sensed_at GROUP BY device;

-- name: azure_short_circuit
SELECT device, min(reading) FILTER (WHERE sensor = 'temp') AS coldest,
  max(reading) FILTER (WHERE sensor = 'power') AS max_power
FROM ovens WINDOW RANGE '3 minutes' SLIDE '10 seconds' ON sensed_at GROUP BY device
HAVING coldest <= 40 AND max_power > 10;

-- name: azure_cars_per_toll
SELECT toll_id, count(*) AS cars FROM tolls WINDOW RANGE '5 seconds' ON entry_time GROUP BY toll_id;

-- ------------------------------------------------------------------------------------- Elasticsearch
-- name: elastic_best_customers
SELECT user_id, count(order_id) AS orders, sum(amount) AS total, avg(amount) AS mean_order,
  avg(quantity) AS mean_quantity, count(DISTINCT product_id) AS products
FROM orders WINDOW RANGE '30 days' SLIDE '1 day' ON order_time GROUP BY user_id;

-- name: elastic_carrier_delays
SELECT carrier, count(flight) AS flights, sum(delay_minutes) AS delay, sum(flight_minutes) AS flown,
  sum(delay_minutes) / sum(flight_minutes) * 100 AS delay_percentage
FROM flights WINDOW RANGE '7 days' SLIDE '1 day' ON departed_at WHERE NOT cancelled GROUP BY carrier;

-- name: elastic_suspicious_clients
SELECT client, sum(bytes) AS bytes, count(DISTINCT path) AS urls, count(DISTINCT user_agent) AS agents,
  count(DISTINCT country) AS countries, count(*) AS responses, count_if(status = 200) AS success,
  count_if(status = 404) AS error404, count_if(status = 503) AS error503, min(request_time) AS first_seen,
  max(request_time) AS last_seen, max(request_time) - min(request_time) AS seconds
FROM requests WINDOW RANGE '1 day' SLIDE '1 hour' ON request_time GROUP BY client;

-- name: elastic_last_log
SELECT client, max(request_time) AS seen, max_by(path, request_time) AS path, max_by(status, request_time) AS status
FROM requests WINDOW RANGE '1 day' SLIDE '1 minute' ON request_time GROUP BY client;

-- ---------------------------------------------------------------------------------------- Prometheus
-- name: prometheus_requests_rate
SELECT instance, rate(requests) AS requests_per_second FROM counters
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON scraped_at GROUP BY instance;

-- name: prometheus_failure_ratio
SELECT instance, rate(failures) / rate(requests) AS failure_ratio FROM counters
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON scraped_at GROUP BY instance;

-- name: prometheus_mean_latency
SELECT instance, rate(latency_sum) / rate(latency_count) AS mean_latency FROM counters
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON scraped_at GROUP BY instance;

-- name: prometheus_latency_quantile
SELECT path, percentile(latency, 0.95) AS p95 FROM requests
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON request_time GROUP BY path;

-- name: prometheus_apdex
SELECT host, (count_if(latency <= 300) + count_if(latency <= 1200)) / 2 / count(latency) AS apdex FROM requests
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON request_time GROUP BY host;

-- name: prometheus_disk_full
SELECT instance, regr_intercept(free_bytes, scraped_at - date_trunc('hour', scraped_at))
  + (3600 + 4 * 3600) * regr_slope(free_bytes, scraped_at - date_trunc('hour', scraped_at)) AS free_in_four_hours
FROM counters WINDOW RANGE '1 hour' ON scraped_at GROUP BY instance;

-- name: alerts_http_5xx
SELECT host, 100.0 * count_if(status >= 500) / count(*) AS failed FROM requests
WINDOW RANGE '1 minute' ON request_time GROUP BY host HAVING failed > 5;

-- name: alerts_container_gone
SELECT host, max(request_time) OVER h1 AS last_seen FROM requests
WINDOW m1 AS (RANGE '1 minute'), h1 AS (RANGE '1 hour') SLIDE '1 minute' ON request_time
GROUP BY host HAVING count(*) OVER m1 = 0;

-- name: alerts_disk_read_latency
SELECT instance, rate(read_ms) / rate(reads) AS ms_per_read FROM counters
WINDOW RANGE '1 minute' ON scraped_at GROUP BY instance HAVING ms_per_read > 100;

-- --------------------------------------------------------------------------------------- TimescaleDB
-- name: timescale_median_temperature
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY temperature) AS median_temperature FROM readings
WINDOW RANGE '1 day' ON reading_time;

-- name: timescale_moving_average
SELECT device, avg(temperature) AS smooth FROM readings WINDOW ROWS 10 SLIDE 1 PARTITION BY device ON reading_time
GROUP BY device;

-- name: timescale_bytes_increase
SELECT instance, rate(bytes_sent) * (max(scraped_at) FILTER (WHERE bytes_sent IS NOT NULL)
  - min(scraped_at) FILTER (WHERE bytes_sent IS NOT NULL)) AS increase
FROM counters WINDOW RANGE '1 day' ON scraped_at GROUP BY instance;

-- name: timescale_daily_change
SELECT location, avg(temperature) OVER today - avg(temperature) OVER yesterday AS change FROM readings
WINDOW today AS (RANGE '1 day'), yesterday AS (RANGE '1 day' ENDING '1 day' AGO) SLIDE '1 day' ON reading_time
GROUP BY location;

-- name: timescale_last_temperature
SELECT location, last(temperature) AS latest FROM readings WINDOW RANGE '5 minutes' ON reading_time GROUP BY location;

-- name: timescale_histogram
SELECT location, count(*) AS n, count_if(temperature < 60) AS below,
  count_if(temperature >= 60 AND temperature < 65) AS b60, count_if(temperature >= 65 AND temperature < 70) AS b65,
  count_if(temperature >= 70 AND temperature < 75) AS b70, count_if(temperature >= 75 AND temperature < 80) AS b75,
  count_if(temperature >= 80 AND temperature < 85) AS b80, count_if(temperature >= 85) AS above
FROM readings WINDOW RANGE '7 days' SLIDE '1 day' ON reading_time GROUP BY location;

-- name: timescale_time_weighted
SELECT device, time_weighted_avg(CAST(temperature AS decimal(10, 2))) AS mean_temperature FROM readings
WINDOW RANGE '1 day' ON reading_time GROUP BY device;

-- name: timescale_time_in_state
SELECT device, time_while(status = 'open') AS seconds FROM readings WINDOW RANGE '1 day' ON reading_time
GROUP BY device;

-- name: energy_typical_hour
SELECT extract(hour FROM measured_at AT TIME ZONE 'Europe/Berlin') AS hour_of_day, median(kwh) AS typical,
  max(kwh) AS greatest
FROM meters WINDOW RANGE '365 days' SLIDE '1 day' ON measured_at
GROUP BY extract(hour FROM measured_at AT TIME ZONE 'Europe/Berlin');

-- name: energy_months
SELECT meter, sum(kwh) AS kwh FROM meters WINDOW RANGE '1 month' ON measured_at GROUP BY meter;

-- name: nyc_single_passengers
SELECT avg(fare) AS mean_fare FROM rides WINDOW RANGE '1 day' ON picked_up_at WHERE passengers = 1;

-- name: nyc_airports
SELECT rates.description, count(*) AS rides, avg(dropped_off_at - picked_up_at) AS mean_seconds,
  avg(total) AS mean_total, avg(tip) AS mean_tip, min(distance) AS least, avg(distance) AS mean_distance,
  max(distance) AS greatest, avg(passengers) AS mean_passengers
FROM rides JOIN rates USING (rate_code) WINDOW RANGE '31 days' SLIDE '1 day' ON picked_up_at
WHERE rides.rate_code IN (2, 3) GROUP BY rates.description;

-- name: nyc_times_square
SELECT count(*) AS rides FROM rides WINDOW RANGE '30 minutes' ON picked_up_at
WHERE 2 * 6371000 * asin(sqrt(power(sin((pickup_lat - 40.7589) * 0.00872664625997165), 2)
  + cos(pickup_lat * 0.0174532925199433) * cos(40.7589 * 0.0174532925199433)
  * power(sin((pickup_lon + 73.9851) * 0.00872664625997165), 2))) < 400;

-- ------------------------------------------------------------------------------------------- QuestDB
-- name: questdb_volume_profile
SELECT symbol, floor(price / 1.0) AS price_bin, sum(volume) AS volume FROM trades
WINDOW RANGE '1 day' ON trade_time GROUP BY symbol, floor(price / 1.0);

-- name: questdb_aggressor_imbalance
SELECT symbol, sum(CASE WHEN side = 'buy' THEN volume ELSE 0 END) AS bought,
  sum(CASE WHEN side = 'sell' THEN volume ELSE 0 END) AS sold, (bought - sold) / (bought + sold) * 100 AS imbalance
FROM trades WINDOW RANGE '1 day' ON trade_time GROUP BY symbol;

-- name: questdb_trin
SELECT count_if(side = 'buy') / count_if(side = 'sell') AS tick,
  count_if(side = 'buy') / count_if(side = 'sell')
  / (sum(volume) FILTER (WHERE side = 'buy') / sum(volume) FILTER (WHERE side = 'sell')) AS trin
FROM trades WINDOW CUMULATE '1 hour' STEP '1 minute' ON trade_time;

-- ---------------------------------------------------------------------------------------------- Cube
-- name: cube_active_users
SELECT count(DISTINCT user_id) OVER d1 AS daily, count(DISTINCT user_id) OVER d7 AS weekly,
  count(DISTINCT user_id) OVER d30 AS monthly, 100.0 * weekly / nullif(monthly, 0) AS wau_to_mau
FROM orders WINDOW d1 AS (RANGE '1 day'), d7 AS (RANGE '7 days'), d30 AS (RANGE '30 days') SLIDE '1 day' ON order_time;

-- name: cube_page_views
SELECT count(*) AS events, count(*) FILTER (WHERE kind = 'view') AS page_views FROM actions
WINDOW RANGE '1 day' ON action_time;

-- name: cube_price_percentiles
SELECT category, avg(amount) AS mean_amount, median(amount) AS median_amount, percentile(amount, 0.95) AS p95
FROM orders WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY category;

-- name: cube_month_over_month
SELECT count(*) OVER m AS this_month, count(*) OVER m2 - count(*) OVER m AS month_before,
  100.0 * this_month / nullif(month_before, 0) AS percentage
FROM actions WINDOW m AS (RANGE '1 month'), m2 AS (RANGE '2 months') SLIDE '1 month' ON action_time;

-- ------------------------------------------------------------------------------- Confluent tutorials
-- name: confluent_cold_devices
SELECT device, avg(temperature) AS mean_temperature FROM readings
WINDOW RANGE '10 minutes' SLIDE '5 minutes' ON reading_time GROUP BY device HAVING avg(temperature) < 45;

-- name: confluent_running_revenue
SELECT sum(amount) AS revenue FROM orders WINDOW CUMULATE '1 day' STEP '10 minutes' ON order_time;

-- -------------------------------------------------------------------------------------------- Tecton
-- name: tecton_fraud_counts
SELECT card_number, count(*) OVER (m1, m5, h1) AS refused FROM card_attempts
WINDOW m1 AS (RANGE '1 minute'), m5 AS (RANGE '5 minutes'), h1 AS (RANGE '1 hour') SLIDE '1 minute' ON attempt_time
WHERE NOT approved GROUP BY card_number;

-- name: tecton_distinct_merchants
SELECT card_number, count(DISTINCT merchant) AS merchants FROM card_attempts
WINDOW RANGE '30 days' SLIDE '1 day' ON attempt_time GROUP BY card_number;

-- name: tecton_recent_amounts
SELECT card_number, last_distinct(amount, 10) OVER (h1, h12, d1, d3) AS amounts FROM card_attempts
WINDOW h1 AS (RANGE '1 hour'), h12 AS (RANGE '12 hours'), d1 AS (RANGE '24 hours'), d3 AS (RANGE '72 hours')
  SLIDE '10 minutes' ON attempt_time
GROUP BY card_number;

-- name: tecton_ad_impressions
SELECT user_id, ad_id, count(*) OVER (h1, d1, d3) AS impressions FROM ad_events
WINDOW h1 AS (RANGE '1 hour'), d1 AS (RANGE '24 hours'), d3 AS (RANGE '72 hours') SLIDE '1 hour' ON event_time
WHERE kind = 'impression' GROUP BY user_id, ad_id;

-- name: tecton_last_amounts
SELECT card_number, last(amount) OVER (h1, h12, d1, d3) AS amount FROM card_attempts
WINDOW h1 AS (RANGE '1 hour'), h12 AS (RANGE '12 hours'), d1 AS (RANGE '24 hours'), d3 AS (RANGE '72 hours')
  SLIDE '10 minutes' ON attempt_time
GROUP BY card_number;

-- name: tecton_user_click_rate
SELECT user_id, count_if(kind = 'click') / nullif(count_if(kind = 'impression'), 0) AS click_rate FROM ad_events
WINDOW RANGE '7 days' SLIDE '1 hour' ON event_time GROUP BY user_id;

-- ----------------------------------------------------------------------------------------- Hopsworks
-- name: hopsworks_video_interactions
SELECT video_id, count_if(interaction = 'like') AS likes, count_if(interaction = 'dislike') AS dislikes,
  count_if(interaction = 'view') AS views, count_if(interaction = 'comment') AS comments,
  count_if(interaction = 'share') AS shares, count_if(interaction = 'skip') AS skips,
  sum(watch_seconds) AS watch_seconds
FROM interactions WINDOW RANGE '1 hour' ON interacted_at GROUP BY video_id;

-- name: hopsworks_moving_average
SELECT symbol, avg(price) AS ma_7 FROM trades WINDOW ROWS 7 SLIDE 1 PARTITION BY symbol ON trade_time GROUP BY symbol;

-- name: hopsworks_volatility
SELECT symbol, stddev(price) AS volatility FROM trades WINDOW ROWS 30 SLIDE 1 PARTITION BY symbol ON trade_time
GROUP BY symbol;

-- -------------------------------------------------------------------------------------------- Fennel
-- name: fennel_decayed_sum
SELECT card_number,
  coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 1)) OVER d0, 0)
  + coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 2)) OVER d1, 0)
  + coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 3)) OVER d2, 0)
  + coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 4)) OVER d3, 0)
  + coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 5)) OVER d4, 0)
  + coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 6)) OVER d5, 0)
  + coalesce(sum(amount * power(2, (attempt_time - date_trunc('day', attempt_time)) / 86400 - 7)) OVER d6, 0)
  AS decayed
FROM card_attempts
WINDOW d0 AS (RANGE '1 day'), d1 AS (RANGE '1 day' ENDING '1 day' AGO), d2 AS (RANGE '1 day' ENDING '2 days' AGO),
  d3 AS (RANGE '1 day' ENDING '3 days' AGO), d4 AS (RANGE '1 day' ENDING '4 days' AGO),
  d5 AS (RANGE '1 day' ENDING '5 days' AGO), d6 AS (RANGE '1 day' ENDING '6 days' AGO) SLIDE '1 day' ON attempt_time
GROUP BY card_number;

-- name: fennel_total_forever
SELECT card_number, sum(amount) OVER ever AS total, count(*) OVER d1 AS of_a_day FROM card_attempts
WINDOW ever AS (RANGE UNBOUNDED), d1 AS (RANGE '1 day') SLIDE '1 day' ON attempt_time GROUP BY card_number;

-- name: fennel_first_amounts
SELECT card_number, last_k(amount, 10 ORDER BY attempt_time DESC) AS amounts FROM card_attempts
WINDOW RANGE '1 day' SLIDE '1 hour' ON attempt_time GROUP BY card_number;

-- ---------------------------------------------------------------------------------------- RisingWave
-- name: risingwave_betting
SELECT user_id, count(*) AS bets, count_if(status = 'paid') AS wins, count_if(status = 'cancelled') AS losses,
  avg(amount) AS mean_profit, sum(amount) AS profit
FROM orders WINDOW RANGE UNBOUNDED SLIDE '1 day' ON order_time GROUP BY user_id;

-- name: risingwave_campaigns
SELECT marketing.campaign_id, c.campaign_name, c.campaign_type,
  count(DISTINCT CASE WHEN event_type = 'impression' THEN event_id END) AS impressions,
  count(DISTINCT CASE WHEN event_type = 'click' THEN event_id END) AS clicks,
  count(DISTINCT CASE WHEN event_type = 'conversion' THEN event_id END) AS conversions,
  sum(CASE WHEN event_type = 'conversion' THEN amount ELSE 0 END) AS revenue,
  clicks / nullif(impressions, 0) AS ctr, conversions / nullif(clicks, 0) AS conversion_rate
FROM marketing JOIN campaigns AS c USING (campaign_id) WINDOW RANGE '1 hour' ON touched_at
GROUP BY marketing.campaign_id, c.campaign_name, c.campaign_type;

-- name: risingwave_channels
SELECT channel_type, utm_source, count(DISTINCT user_id) AS users,
  count(DISTINCT CASE WHEN event_type = 'conversion' THEN event_id END) AS conversions,
  sum(CASE WHEN event_type = 'conversion' THEN amount ELSE 0 END) AS revenue,
  revenue / nullif(conversions, 0) AS mean_order
FROM marketing WINDOW RANGE '1 hour' ON touched_at GROUP BY channel_type, utm_source;

-- name: risingwave_price_spike
SELECT symbol, round((max(price) - min(price)) / min(price) * 100, 2) AS change_percentage,
  change_percentage > 5 AS price_spike
FROM trades WINDOW RANGE '5 minutes' ON trade_time GROUP BY symbol;

-- --------------------------------------------------------------------------------------------- Sigma
-- name: sigma_many_failed_logins
-- events: 2000
SELECT host, count(*) AS failed FROM logins WINDOW RANGE '1 hour' SLIDE '1 minute' ON login_time
WHERE outcome = 'failed' GROUP BY host HAVING count(*) >= 100;

-- name: sigma_many_accounts
-- events: 8000
SELECT host, workstation, count(DISTINCT account) AS accounts FROM logins
WINDOW RANGE '1 day' SLIDE '1 hour' ON login_time WHERE outcome = 'failed'
GROUP BY host, workstation HAVING count(DISTINCT account) >= 100;

-- name: sigma_reconnaissance
SELECT host, account, count(*) AS commands FROM logins WINDOW RANGE '5 minutes' SLIDE '10 seconds' ON login_time
GROUP BY host, account
HAVING count_if(command = 'whoami') > 0 AND count_if(command = 'netstat') > 0 AND count_if(command = 'ipconfig') > 0;

-- -------------------------------------------------------------------------------- Apache Beam, Druid
-- name: beam_hourly_team_scores
SELECT team, sum(score) AS score FROM plays WINDOW RANGE '1 hour' ON played_at GROUP BY team;

-- name: druid_flow_rollup
SELECT source_address, target_address, count(*) AS flows, sum(packets) AS packets, sum(bytes) AS bytes FROM flows
WINDOW RANGE '1 minute' ON flow_time GROUP BY source_address, target_address;

-- ---------------------------------------------------------------------------------------- Databricks
-- name: databricks_trailing_customers
SELECT count(DISTINCT user_id) AS customers FROM orders WINDOW RANGE '7 days' SLIDE '1 day' ON order_time;

-- name: databricks_sales_growth
SELECT 100.0 * (sum(amount) OVER today - sum(amount) OVER yesterday) / sum(amount) OVER yesterday AS growth FROM orders
WINDOW today AS (RANGE '1 day'), yesterday AS (RANGE '1 day' ENDING '1 day' AGO) SLIDE '1 day' ON order_time;

-- name: databricks_year_to_date
SELECT sum(amount) AS ytd_sales FROM orders WINDOW CUMULATE '1 year' STEP '1 day' ON order_time;

-- ----------------------------------------------------------------------- Google Analytics, New Relic
-- name: ga4_purchases_per_buyer
SELECT count_if(event_name = 'purchase') AS purchases,
  count(DISTINCT user_id) FILTER (WHERE event_name = 'purchase') AS buyers, purchases / buyers AS per_buyer
FROM site_events WINDOW RANGE '1 day' ON happened_at;

-- name: ga4_spend_per_session
SELECT user_id, sum(amount) / count(DISTINCT session_id) AS spend_per_session FROM site_events
WINDOW RANGE '7 days' SLIDE '1 day' ON happened_at WHERE event_name = 'purchase' GROUP BY user_id;

-- name: ga4_user_counts
SELECT count(DISTINCT user_id) AS users,
  count(DISTINCT CASE WHEN event_name IN ('first_visit', 'first_open') THEN user_id END) AS new_users
FROM site_events WINDOW RANGE '1 day' ON happened_at;

-- name: nrql_compare_with
SELECT avg(latency) OVER this_hour AS now_mean, avg(latency) OVER before AS mean_a_week_ago FROM requests
WINDOW this_hour AS (RANGE '1 hour'), before AS (RANGE '1 hour' ENDING '7 days' AGO) SLIDE '5 minutes' ON request_time;

-- name: nrql_percentage
SELECT path, 100.0 * count(*) FILTER (WHERE status = 200) / count(*) AS ok FROM requests
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON request_time GROUP BY path;

-- ---------------------------------------------------------------------------- sessions and funnels
-- name: questdb_user_sessions
SELECT user_id, min(view_time) AS first_view, max(view_time) AS last_view, count(*) AS page_views FROM pageviews
WINDOW SESSION GAP '1 hour' UP TO '1 day' ON view_time GROUP BY user_id;

-- name: cube_sessions
SELECT user_id, count(*) AS events FROM actions WINDOW SESSION GAP '30 minutes' UP TO '1 day' ON action_time
GROUP BY user_id;

-- name: confluent_expired_sessions
SELECT user_id, count(*) AS events FROM actions WINDOW SESSION GAP '30 seconds' UP TO '1 day' ON action_time
GROUP BY user_id HAVING count_if(kind = 'logout') = 0;

-- name: cube_funnel
SELECT reached(1) AS viewed, reached(2) AS carted, reached(3) AS bought FROM actions
PATTERN SEQ(view, cart, buy) ON kind PARTITION BY user_id WINDOW RANGE '1 day' ON action_time;

-- name: nrql_funnel
SELECT reached(1) AS began, reached(2) AS went_on FROM pageviews
PATTERN SEQ('a', 'b') ON page PARTITION BY session_id WINDOW RANGE '1 day' ON view_time;
