-- The metrics of documented.sql as DuckDB answers them, written by hand from what the metric is: nothing here comes
-- from our parser. `hops` and the others are in macros.sql; an answer is known by `window_end` and its groups.

-- name: azure_weight_by_make
SELECT window_end, make, sum(weight::BIGINT) AS weight FROM hops('10 seconds', '10 seconds') GROUP BY ALL;

-- name: azure_cars_passed
SELECT window_end, make, CASE n WHEN 1 THEN '1 ' || make ELSE n || ' ' || make || 's' END AS cars_passed
FROM (SELECT window_end, make, count(*) AS n FROM hops('10 seconds', '10 seconds') GROUP BY ALL);

-- name: azure_busy_makes
SELECT window_end, make, count(*) AS cars FROM hops('10 seconds', '10 seconds') GROUP BY ALL HAVING count(*) >= 3;

-- name: azure_distinct_makes
SELECT window_end, count(DISTINCT make) AS makes FROM hops('2 seconds', '2 seconds') GROUP BY ALL;

-- name: azure_make_changed
SELECT t + INTERVAL 1 MICROSECOND AS window_end, make, lag(make) OVER (ORDER BY t) AS make_before FROM events
QUALIFY make_before <> make AND due(window_end);

-- name: azure_first_car
SELECT window_end, make, arg_min_null(plate, t) AS plate, min(t) AS entered FROM hops('10 minutes', '10 minutes')
GROUP BY ALL;

-- name: azure_last_car
SELECT window_end, plate, make, t AS entered FROM hops('10 minutes', '10 minutes')
QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY t DESC) = 1;

-- name: azure_overweight_time
SELECT window_end, coalesce(sum(epoch_us(until) - epoch_us(t)) FILTER (weight::BIGINT > 20000), 0) / 1e6 AS seconds
FROM (SELECT *, lead(t) OVER (PARTITION BY window_end ORDER BY t) AS until FROM hops('1 day', '1 day'))
GROUP BY window_end;

-- name: azure_last_reading
SELECT window_end, device, reading, t AS seen FROM hops('300 seconds', '5 seconds')
QUALIFY row_number() OVER (PARTITION BY window_end, device ORDER BY t DESC) = 1;

-- name: azure_short_circuit
SELECT * FROM (
  SELECT window_end, device, min(CASE WHEN sensor = 'temp' THEN reading END) AS coldest,
    max(CASE WHEN sensor = 'power' THEN reading END) AS max_power
  FROM hops('3 minutes', '10 seconds') GROUP BY window_end, device
) WHERE coldest <= 40 AND max_power > 10;

-- name: azure_cars_per_toll
SELECT window_end, toll_id, count(*) AS cars FROM hops('5 seconds', '5 seconds') GROUP BY ALL;

-- name: elastic_best_customers
SELECT window_end, user_id, count(order_id) AS orders, sum(amount) AS total, sum(amount) / count(amount) AS mean_order,
  avg(quantity) AS mean_quantity, count(DISTINCT product_id) AS products
FROM hops('30 days', '1 day') GROUP BY ALL;

-- name: elastic_carrier_delays
SELECT window_end, carrier, count(flight) AS flights, sum(delay_minutes) AS delay, sum(flight_minutes) AS flown,
  100 * sum(delay_minutes) / sum(flight_minutes) AS delay_percentage
FROM hops('7 days', '1 day') WHERE cancelled = false GROUP BY ALL;

-- name: elastic_suspicious_clients
SELECT window_end, client, sum(bytes) AS bytes, count(DISTINCT path) AS urls, count(DISTINCT user_agent) AS agents,
  count(DISTINCT country) AS countries, count(*) AS responses, count(*) FILTER (status = 200) AS success,
  count(*) FILTER (status = 404) AS error404, count(*) FILTER (status = 503) AS error503, min(t) AS first_seen,
  max(t) AS last_seen, (epoch_us(max(t)) - epoch_us(min(t))) / 1e6 AS seconds
FROM hops('1 day', '1 hour') GROUP BY ALL;

-- name: elastic_last_log
SELECT window_end, client, t AS seen, path, status FROM hops('1 day', '1 minute')
QUALIFY row_number() OVER (PARTITION BY window_end, client ORDER BY t DESC) = 1;

-- name: prometheus_requests_rate
SELECT window_end, instance, rate AS requests_per_second FROM rates(requests, instance, '5 minutes', '1 minute');

-- name: prometheus_failure_ratio
SELECT window_end, failed.instance, failed.rate / nullif(everything.rate, 0) AS failure_ratio
FROM rates(failures, instance, '5 minutes', '1 minute') AS failed
JOIN rates(requests, instance, '5 minutes', '1 minute') AS everything USING (window_end)
WHERE failed.instance IS NOT DISTINCT FROM everything.instance;

-- name: prometheus_mean_latency
SELECT window_end, seconds.instance, seconds.rate / nullif(number.rate, 0) AS mean_latency
FROM rates(latency_sum, instance, '5 minutes', '1 minute') AS seconds
JOIN rates(latency_count, instance, '5 minutes', '1 minute') AS number USING (window_end)
WHERE seconds.instance IS NOT DISTINCT FROM number.instance;

-- name: prometheus_latency_quantile
SELECT window_end, path, quantile_cont(latency, 0.95) AS p95 FROM hops('5 minutes', '1 minute') GROUP BY ALL;

-- name: prometheus_apdex
SELECT window_end, host,
  avg(CASE WHEN latency <= 300 THEN 1 WHEN latency <= 1200 THEN 0.5 WHEN latency > 1200 THEN 0 END) AS apdex
FROM hops('5 minutes', '1 minute') GROUP BY ALL;

-- name: prometheus_disk_full
SELECT window_end, instance,
  CASE WHEN count(free_bytes) > 1 THEN avg(free_bytes) + regr_slope(free_bytes, seconds)
    * (4 * 3600 - avg(seconds) FILTER (free_bytes IS NOT NULL)) END AS free_in_four_hours
FROM (SELECT *, (epoch_us(t) - epoch_us(window_end)) / 1e6 AS seconds FROM hops('1 hour', '1 hour'))
GROUP BY window_end, instance;

-- name: alerts_http_5xx
SELECT window_end, host, failed FROM (
  SELECT window_end, host, 100.0 * count(CASE WHEN status >= 500 THEN 1 END) / count(*) AS failed
  FROM hops('1 minute', '1 minute') GROUP BY ALL
) WHERE failed > 5;

-- name: alerts_container_gone
SELECT window_end, host, max(t) AS last_seen FROM hops('1 hour', '1 minute') GROUP BY ALL
HAVING max(t) < window_end - INTERVAL 1 MINUTE;

-- name: alerts_disk_read_latency
SELECT window_end, spent.instance, spent.rate / nullif(read.rate, 0) AS ms_per_read
FROM rates(read_ms, instance, '1 minute', '1 minute') AS spent
JOIN rates(reads, instance, '1 minute', '1 minute') AS read USING (window_end)
WHERE spent.instance IS NOT DISTINCT FROM read.instance AND spent.rate / nullif(read.rate, 0) > 100;

-- name: timescale_median_temperature
SELECT window_end, median(temperature) AS median_temperature FROM hops('1 day', '1 day') GROUP BY ALL;

-- name: timescale_moving_average
SELECT t + INTERVAL 1 MICROSECOND AS window_end, device, avg(temperature) OVER newest AS smooth FROM events
WINDOW newest AS (PARTITION BY device ORDER BY t ROWS 9 PRECEDING)
QUALIFY count(*) OVER newest = 10 AND due(window_end);

-- name: timescale_bytes_increase
SELECT window_end, instance, rate * micros_between / 1e6 AS increase FROM rates(bytes_sent, instance, '1 day', '1 day');

-- name: timescale_daily_change
SELECT window_end, location, avg(temperature) FILTER (t >= window_end - INTERVAL 1 DAY)
  - avg(temperature) FILTER (t < window_end - INTERVAL 1 DAY) AS change
FROM hops('2 days', '1 day') GROUP BY ALL;

-- name: timescale_last_temperature
SELECT window_end, location, arg_max(temperature, t) AS latest FROM hops('5 minutes', '5 minutes') GROUP BY ALL;

-- name: timescale_histogram
SELECT window_end, location, count(*) AS n, count(*) FILTER (bin < 0) AS below, count(*) FILTER (bin = 0) AS b60,
  count(*) FILTER (bin = 1) AS b65, count(*) FILTER (bin = 2) AS b70, count(*) FILTER (bin = 3) AS b75,
  count(*) FILTER (bin = 4) AS b80, count(*) FILTER (bin > 4) AS above
FROM (SELECT *, floor((temperature - 60) / 5) AS bin FROM hops('7 days', '1 day')) GROUP BY ALL;

-- name: timescale_time_weighted
SELECT window_end, device, sum(temperature * passed) / nullif(sum(passed), 0) AS mean_temperature
FROM (
  SELECT window_end, device, temperature, CASE WHEN temperature IS NOT NULL THEN
    epoch_us(lead(t) OVER (PARTITION BY window_end, device, temperature IS NULL ORDER BY t)) - epoch_us(t) END AS passed
  FROM hops('1 day', '1 day')
)
GROUP BY window_end, device;

-- name: timescale_time_in_state
SELECT window_end, device, coalesce(sum(epoch_us(until) - epoch_us(t)) FILTER (status = 'open'), 0) / 1e6 AS seconds
FROM (SELECT *, lead(t) OVER (PARTITION BY window_end, device ORDER BY t) AS until FROM hops('1 day', '1 day'))
GROUP BY ALL;

-- name: energy_typical_hour
SELECT window_end, hour(t AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS hour_of_day, median(kwh) AS typical,
  max(kwh) AS greatest
FROM hops('365 days', '1 day') GROUP BY ALL;

-- name: energy_months
SELECT window_end, meter, sum(kwh) AS kwh FROM months(1) GROUP BY ALL;

-- name: nyc_single_passengers
SELECT window_end, sum(fare) / count(fare) AS mean_fare FROM hops('1 day', '1 day') WHERE passengers = 1 GROUP BY ALL;

-- name: nyc_airports
SELECT window_end, description, count(*) AS rides, avg(epoch_us(dropped_off_at) - epoch_us(picked_up_at)) / 1e6
  AS mean_seconds, sum(total) / count(total) AS mean_total, sum(tip) / count(tip) AS mean_tip, min(distance) AS least,
  avg(distance) AS mean_distance, max(distance) AS greatest, avg(passengers) AS mean_passengers
FROM hops('31 days', '1 day') JOIN rates USING (rate_code) WHERE rate_code IN (2, 3) GROUP BY ALL;

-- name: nyc_times_square
SELECT window_end, count(*) AS rides FROM hops('30 minutes', '30 minutes')
WHERE 6371000 * acos(sin(radians(pickup_lat)) * sin(radians(40.7589))
  + cos(radians(pickup_lat)) * cos(radians(40.7589)) * cos(radians(pickup_lon + 73.9851))) < 400
GROUP BY ALL;

-- name: questdb_volume_profile
SELECT window_end, symbol, floor(price) AS price_bin, sum(volume) AS volume FROM hops('1 day', '1 day') GROUP BY ALL;

-- name: questdb_aggressor_imbalance
SELECT *, (bought - sold) / nullif(bought + sold, 0) * 100 AS imbalance FROM (
  SELECT window_end, symbol, sum(CASE WHEN side = 'buy' THEN volume ELSE 0 END) AS bought,
    sum(CASE WHEN side = 'sell' THEN volume ELSE 0 END) AS sold
  FROM hops('1 day', '1 day') GROUP BY window_end, symbol
);

-- name: questdb_trin
SELECT window_end, up / nullif(down, 0) AS tick, up / nullif(down, 0) / nullif(upvol / nullif(downvol, 0), 0) AS trin
FROM (
  SELECT window_end, count(*) FILTER (side = 'buy') AS up, count(*) FILTER (side = 'sell') AS down,
    sum(volume) FILTER (side = 'buy') AS upvol, sum(volume) FILTER (side = 'sell') AS downvol
  FROM so_far('1 hour', '1 minute') GROUP BY window_end
);

-- name: cube_active_users
SELECT window_end, count(DISTINCT user_id) FILTER (t >= window_end - INTERVAL 1 DAY) AS daily,
  count(DISTINCT user_id) FILTER (t >= window_end - INTERVAL 7 DAY) AS weekly, count(DISTINCT user_id) AS monthly,
  100 * count(DISTINCT user_id) FILTER (t >= window_end - INTERVAL 7 DAY) / nullif(count(DISTINCT user_id), 0)
    AS wau_to_mau
FROM hops('30 days', '1 day') GROUP BY ALL;

-- name: cube_page_views
SELECT window_end, count(*) AS events, count(*) FILTER (kind = 'view') AS page_views FROM hops('1 day', '1 day')
GROUP BY ALL;

-- name: cube_price_percentiles
SELECT window_end, category, sum(amount) / count(amount) AS mean_amount, median(amount::DOUBLE) AS median_amount,
  quantile_cont(amount::DOUBLE, 0.95) AS p95
FROM hops('7 days', '1 day') GROUP BY ALL;

-- name: cube_month_over_month
SELECT *, 100.0 * this_month / nullif(month_before, 0) AS percentage FROM (
  SELECT window_end, count(*) FILTER (t >= window_end - INTERVAL 1 MONTH) AS this_month,
    count(*) FILTER (t < window_end - INTERVAL 1 MONTH) AS month_before
  FROM months(2) GROUP BY window_end
);

-- name: confluent_cold_devices
SELECT window_end, device, avg(temperature) AS mean_temperature FROM hops('10 minutes', '5 minutes') GROUP BY ALL
HAVING avg(temperature) < 45;

-- name: confluent_running_revenue
SELECT window_end, sum(amount) AS revenue FROM so_far('1 day', '10 minutes') GROUP BY ALL;

-- name: tecton_fraud_counts
SELECT window_end, card_number, count(*) FILTER (t >= window_end - INTERVAL 1 MINUTE) AS refused_m1,
  count(*) FILTER (t >= window_end - INTERVAL 5 MINUTE) AS refused_m5, count(*) AS refused_h1
FROM hops('1 hour', '1 minute') WHERE approved = false GROUP BY ALL;

-- name: tecton_distinct_merchants
SELECT window_end, card_number, count(DISTINCT merchant) AS merchants FROM hops('30 days', '1 day') GROUP BY ALL;

-- name: tecton_recent_amounts
SELECT window_end, card_number,
  list(amount ORDER BY latest) FILTER (hours = 1 AND amount IS NOT NULL)[-10:] AS amounts_h1,
  list(amount ORDER BY latest) FILTER (hours = 12 AND amount IS NOT NULL)[-10:] AS amounts_h12,
  list(amount ORDER BY latest) FILTER (hours = 24 AND amount IS NOT NULL)[-10:] AS amounts_d1,
  list(amount ORDER BY latest) FILTER (hours = 72 AND amount IS NOT NULL)[-10:] AS amounts_d3
FROM (
  SELECT window_end, card_number, hours, amount, max(t) AS latest
  FROM hops('72 hours', '10 minutes'), (SELECT unnest([1, 12, 24, 72]) AS hours)
  WHERE t >= window_end - to_hours(hours) GROUP BY ALL
)
GROUP BY window_end, card_number;

-- name: tecton_ad_impressions
SELECT window_end, user_id, ad_id, count(*) FILTER (t >= window_end - INTERVAL 1 HOUR) AS impressions_h1,
  count(*) FILTER (t >= window_end - INTERVAL 24 HOUR) AS impressions_d1, count(*) AS impressions_d3
FROM hops('72 hours', '1 hour') WHERE kind = 'impression' GROUP BY ALL;

-- name: tecton_last_amounts
SELECT window_end, card_number, arg_max(amount, t) FILTER (t >= window_end - INTERVAL 1 HOUR) AS amount_h1,
  arg_max(amount, t) FILTER (t >= window_end - INTERVAL 12 HOUR) AS amount_h12,
  arg_max(amount, t) FILTER (t >= window_end - INTERVAL 24 HOUR) AS amount_d1, arg_max(amount, t) AS amount_d3
FROM hops('72 hours', '10 minutes') GROUP BY ALL;

-- name: tecton_user_click_rate
SELECT window_end, user_id, count(*) FILTER (kind = 'click') / nullif(count(*) FILTER (kind = 'impression'), 0)
  AS click_rate
FROM hops('7 days', '1 hour') GROUP BY ALL;

-- name: hopsworks_video_interactions
SELECT window_end, video_id, count(*) FILTER (interaction = 'like') AS likes,
  count(*) FILTER (interaction = 'dislike') AS dislikes, count(*) FILTER (interaction = 'view') AS views,
  count(*) FILTER (interaction = 'comment') AS comments, count(*) FILTER (interaction = 'share') AS shares,
  count(*) FILTER (interaction = 'skip') AS skips, sum(watch_seconds) AS watch_seconds
FROM hops('1 hour', '1 hour') GROUP BY ALL;

-- name: hopsworks_moving_average
SELECT t + INTERVAL 1 MICROSECOND AS window_end, symbol, avg(price) OVER newest AS ma_7 FROM events
WINDOW newest AS (PARTITION BY symbol ORDER BY t ROWS 6 PRECEDING)
QUALIFY count(*) OVER newest = 7 AND due(window_end);

-- name: hopsworks_volatility
SELECT t + INTERVAL 1 MICROSECOND AS window_end, symbol, stddev_samp(price) OVER newest AS volatility FROM events
WINDOW newest AS (PARTITION BY symbol ORDER BY t ROWS 29 PRECEDING)
QUALIFY count(*) OVER newest = 30 AND due(window_end);

-- name: fennel_decayed_sum
SELECT window_end, card_number,
  coalesce(sum(amount * pow(2, -(epoch_us(window_end) - epoch_us(t)) / 86400e6)), 0) AS decayed
FROM hops('7 days', '1 day') GROUP BY ALL;

-- name: fennel_total_forever
SELECT window_end, card_number, sum(amount) AS total, count(*) FILTER (t >= window_end - INTERVAL 1 DAY) AS of_a_day
FROM ever('1 day') GROUP BY ALL;

-- name: fennel_first_amounts
SELECT window_end, card_number, list_reverse(list(amount ORDER BY t) FILTER (amount IS NOT NULL)[1:10]) AS amounts
FROM hops('1 day', '1 hour') GROUP BY ALL;

-- name: risingwave_betting
SELECT window_end, user_id, count(*) AS bets, count(*) FILTER (status = 'paid') AS wins,
  count(*) FILTER (status = 'cancelled') AS losses, sum(amount) / count(amount) AS mean_profit, sum(amount) AS profit
FROM ever('1 day') GROUP BY ALL;

-- name: risingwave_campaigns
SELECT *, clicks / nullif(impressions, 0) AS ctr, conversions / nullif(clicks, 0) AS conversion_rate FROM (
  SELECT window_end, campaign_id, campaign_name, campaign_type,
    count(DISTINCT event_id) FILTER (event_type = 'impression') AS impressions,
    count(DISTINCT event_id) FILTER (event_type = 'click') AS clicks,
    count(DISTINCT event_id) FILTER (event_type = 'conversion') AS conversions,
    sum(CASE WHEN event_type = 'conversion' THEN amount ELSE 0 END) AS revenue
  FROM hops('1 hour', '1 hour') JOIN campaigns USING (campaign_id)
  GROUP BY window_end, campaign_id, campaign_name, campaign_type
);

-- name: risingwave_channels
SELECT *, revenue / nullif(conversions, 0) AS mean_order FROM (
  SELECT window_end, channel_type, utm_source, count(DISTINCT user_id) AS users,
    count(DISTINCT event_id) FILTER (event_type = 'conversion') AS conversions,
    sum(CASE WHEN event_type = 'conversion' THEN amount ELSE 0 END) AS revenue
  FROM hops('1 hour', '1 hour') GROUP BY window_end, channel_type, utm_source
);

-- name: risingwave_price_spike
SELECT *, change_percentage > 5 AS price_spike FROM (
  SELECT window_end, symbol, round((max(price) - min(price)) / nullif(min(price), 0) * 100, 2) AS change_percentage
  FROM hops('5 minutes', '5 minutes') GROUP BY window_end, symbol
);

-- name: sigma_many_failed_logins
SELECT window_end, host, count(*) AS failed FROM hops('1 hour', '1 minute') WHERE outcome = 'failed' GROUP BY ALL
HAVING count(*) >= 100;

-- name: sigma_many_accounts
SELECT window_end, host, workstation, count(DISTINCT account) AS accounts FROM hops('1 day', '1 hour')
WHERE outcome = 'failed' GROUP BY ALL HAVING count(DISTINCT account) >= 100;

-- name: sigma_reconnaissance
SELECT window_end, host, account, count(*) AS commands FROM hops('5 minutes', '10 seconds') GROUP BY ALL
HAVING list_has_all(list(command), ['whoami', 'netstat', 'ipconfig']);

-- name: beam_hourly_team_scores
SELECT window_end, team, sum(score) AS score FROM hops('1 hour', '1 hour') GROUP BY ALL;

-- name: druid_flow_rollup
SELECT window_end, source_address, target_address, count(*) AS flows, sum(packets) AS packets, sum(bytes) AS bytes
FROM hops('1 minute', '1 minute') GROUP BY ALL;

-- name: databricks_trailing_customers
SELECT window_end, count(DISTINCT user_id) AS customers FROM hops('7 days', '1 day') GROUP BY ALL;

-- name: databricks_sales_growth
SELECT window_end, (today / nullif(yesterday, 0) - 1) * 100 AS growth FROM (
  SELECT window_end, sum(amount) FILTER (t >= window_end - INTERVAL 1 DAY) AS today,
    sum(amount) FILTER (t < window_end - INTERVAL 1 DAY) AS yesterday
  FROM hops('2 days', '1 day') GROUP BY window_end
);

-- name: databricks_year_to_date
SELECT window_end, sum(amount) AS ytd_sales FROM hops('366 days', '1 day')
WHERE t >= date_trunc('year', window_end - INTERVAL 1 MICROSECOND) GROUP BY ALL;

-- name: ga4_purchases_per_buyer
SELECT *, purchases / nullif(buyers, 0) AS per_buyer FROM (
  SELECT window_end, count(*) FILTER (event_name = 'purchase') AS purchases,
    count(DISTINCT user_id) FILTER (event_name = 'purchase') AS buyers
  FROM hops('1 day', '1 day') GROUP BY window_end
);

-- name: ga4_spend_per_session
SELECT window_end, user_id, sum(amount) / nullif(count(DISTINCT session_id), 0) AS spend_per_session
FROM hops('7 days', '1 day') WHERE event_name = 'purchase' GROUP BY ALL;

-- name: ga4_user_counts
SELECT window_end, count(DISTINCT user_id) AS users,
  count(DISTINCT user_id) FILTER (event_name IN ('first_visit', 'first_open')) AS new_users
FROM hops('1 day', '1 day') GROUP BY ALL;

-- name: nrql_compare_with
SELECT window_end, avg(latency) FILTER (t >= window_end - INTERVAL 1 HOUR) AS now_mean,
  avg(latency) FILTER (t < window_end - INTERVAL 7 DAY) AS mean_a_week_ago
FROM hops('169 hours', '5 minutes')
WHERE t >= window_end - INTERVAL 1 HOUR OR t < window_end - INTERVAL 7 DAY GROUP BY ALL;

-- name: nrql_percentage
SELECT window_end, path, avg(CASE WHEN status = 200 THEN 100.0 ELSE 0 END) AS ok FROM hops('1 hour', '5 minutes')
GROUP BY ALL;

-- name: questdb_user_sessions
SELECT window_end, user_id, min(t) AS first_view, max(t) AS last_view, count(*) AS page_views
FROM sessions(user_id, '1 hour') GROUP BY ALL;

-- name: cube_sessions
SELECT window_end, user_id, count(*) AS events FROM sessions(user_id, '30 minutes') GROUP BY ALL;

-- name: confluent_expired_sessions
SELECT window_end, user_id, count(*) AS events FROM sessions(user_id, '30 seconds') GROUP BY ALL
HAVING count(*) FILTER (kind = 'logout') = 0;

-- name: cube_funnel
WITH steps AS (
  SELECT window_end, user_id, min(t) FILTER (kind = 'view') AS viewed FROM hops('1 day', '1 day') GROUP BY ALL
), carts AS (
  SELECT s.window_end, s.user_id, any_value(viewed) AS viewed, min(h.t) AS carted
  FROM steps s LEFT JOIN hops('1 day', '1 day') h
    ON h.window_end = s.window_end AND h.user_id IS NOT DISTINCT FROM s.user_id AND h.kind = 'cart' AND h.t > viewed
  GROUP BY ALL
), buys AS (
  SELECT c.window_end, c.user_id, any_value(viewed) AS viewed, any_value(carted) AS carted, min(h.t) AS bought
  FROM carts c LEFT JOIN hops('1 day', '1 day') h
    ON h.window_end = c.window_end AND h.user_id IS NOT DISTINCT FROM c.user_id AND h.kind = 'buy' AND h.t > carted
  GROUP BY ALL
)
SELECT window_end, count(viewed) AS viewed, count(carted) AS carted, count(bought) AS bought FROM buys
GROUP BY ALL HAVING count(viewed) > 0;

-- name: nrql_funnel
SELECT window_end, count(began) AS began, count(*) FILTER (went_on > began) AS went_on FROM (
  SELECT window_end, session_id, min(t) FILTER (page = 'a') AS began, max(t) FILTER (page = 'b') AS went_on
  FROM hops('1 day', '1 day') GROUP BY ALL
) GROUP BY ALL HAVING count(began) > 0;
