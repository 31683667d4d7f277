-- Metrics that the language can express. Before each: where it is from (product | page), and what it is.
-- Columns and names are our own.

-- ------------------------------------------------------------------------------------------- Spark
-- name: spark_word_counts
-- source: Spark | Structured Streaming, window operations on event time
-- what: words of ten minutes, every five minutes
SELECT word, count(*) AS words FROM words
WINDOW RANGE '10 minutes' SLIDE '5 minutes' ON ts GROUP BY word;

-- name: spark_tumbling_counts
-- source: Spark | SQL reference, window()
-- what: rows of a key in windows of five minutes
SELECT source, count(*) AS n FROM words WINDOW RANGE '5 minutes' ON ts GROUP BY source;

-- name: spark_device_signal
-- source: Spark | Structured Streaming, operations on streaming DataFrames
-- what: devices whose signal is above ten, and the mean signal of each type
SELECT device_type, avg(signal) AS mean_signal, count(DISTINCT device) AS devices FROM readings
WINDOW RANGE '10 minutes' SLIDE '1 minute' ON reading_time WHERE signal > 10 GROUP BY device_type;

-- name: spark_even_counts
-- source: Spark | SQL functions, count_if
-- what: even and missing values
SELECT device, count_if(battery % 2 = 0) AS even, count_if(battery IS NULL) AS missing FROM readings
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON reading_time GROUP BY device;

-- name: spark_latency_percentiles
-- source: Spark | SQL functions, approx_percentile
-- what: several percentiles at once, approximately
SELECT host, approx_percentile(latency, array(0.5, 0.9, 0.99), 100) AS latencies FROM requests
WINDOW RANGE '15 minutes' SLIDE '5 minutes' ON request_time GROUP BY host;

-- name: spark_distinct_users
-- source: Spark | SQL functions, approx_count_distinct
-- what: distinct users with a permitted error
SELECT region, approx_count_distinct(user_id, 0.02) AS users FROM pageviews
WINDOW RANGE '1 day' SLIDE '1 hour' ON view_time GROUP BY region;

-- name: spark_user_sketches
-- source: Spark | SQL functions, hll_sketch_agg
-- what: sketches of distinct users, to be merged later
SELECT region, hll_sketch_agg(user_id, 12) AS users FROM pageviews
WINDOW RANGE '1 hour' SLIDE '1 hour' ON view_time GROUP BY region;

-- name: spark_price_slope
-- source: Spark | SQL functions, regr_slope
-- what: how the fare grows with the distance, and how well that fits
SELECT city, regr_slope(fare, distance) AS slope, regr_intercept(fare, distance) AS base, regr_r2(fare, distance) AS fit
FROM taxi_trips WINDOW RANGE '1 day' SLIDE '6 hours' ON completed_at GROUP BY city;

-- name: spark_fare_histogram
-- source: Spark | SQL functions, histogram_numeric
-- what: a histogram of five bins
SELECT city, histogram_numeric(fare, 5) AS fares FROM taxi_trips
WINDOW RANGE '1 day' SLIDE '1 day' ON completed_at GROUP BY city;

-- name: spark_device_extremes
-- source: Spark | SQL functions, max_by and min_by
-- what: which device is the hottest and which the coldest
SELECT location, max_by(device, temperature) AS hottest, min_by(device, temperature) AS coldest FROM readings
WINDOW RANGE '30 minutes' SLIDE '10 minutes' ON reading_time GROUP BY location;

-- ------------------------------------------------------------------------------------------- Flink
-- name: flink_supplier_revenue
-- source: Flink | SQL, window aggregation (TUMBLE)
-- what: what each supplier was bid in ten minutes
SELECT supplier_id, sum(price) AS total_price FROM bids WINDOW RANGE '10 minutes' ON bid_time GROUP BY supplier_id;

-- name: flink_total_revenue
-- source: Flink | SQL, window aggregation (HOP)
-- what: bids of ten minutes, every five
SELECT sum(price) AS total_price FROM bids WINDOW RANGE '10 minutes' SLIDE '5 minutes' ON bid_time;

-- name: flink_cumulative_revenue
-- source: Flink | SQL, window aggregation (CUMULATE)
-- what: bids since the last full ten minutes, every two
SELECT sum(price) AS total_price FROM bids WINDOW CUMULATE '10 minutes' STEP '2 minutes' ON bid_time;

-- name: flink_revenue_sets_supplier_id
-- source: Flink | SQL, window aggregation (GROUPING SETS)
-- what: the set of the supplier
SELECT supplier_id, sum(price) AS total_price FROM bids
WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON bid_time GROUP BY supplier_id;

-- name: flink_revenue_sets_all
-- source: Flink | SQL, window aggregation (GROUPING SETS)
-- what: the set of all suppliers
SELECT sum(price) AS total_price FROM bids WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON bid_time;

-- name: flink_cascaded_revenue
-- source: Flink | SQL, window aggregation (cascading windows)
-- what: sums of five minutes, summed over ten: the sum of ten minutes
SELECT sum(price) AS total_price, count(*) AS bids FROM bids WINDOW RANGE '10 minutes' ON bid_time;

-- name: flink_top_suppliers
-- source: Flink | SQL, window Top-N (after window aggregation)
-- what: the three suppliers that were bid the most, of every ten minutes
SELECT supplier_id, sum(price) AS total, count(*) AS bids FROM bids
WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON bid_time GROUP BY supplier_id ORDER BY total DESC LIMIT 3;

-- name: flink_daily_orders
-- source: Flink | SQL, group window aggregation
-- what: what each user ordered on a day
SELECT user_id, sum(amount) AS amount FROM orders WINDOW RANGE '1 day' ON order_time GROUP BY user_id;

-- name: flink_visitors_by_platform
-- source: Flink | performance tuning, FILTER on distinct aggregates
-- what: unique visitors of apps, of the web and in all, by day
SELECT count(DISTINCT user_id) AS total_uv,
  count(DISTINCT user_id) FILTER (WHERE device IN ('android', 'iphone')) AS app_uv,
  count(DISTINCT user_id) FILTER (WHERE device IN ('wap', 'other')) AS web_uv
FROM pageviews WINDOW RANGE '1 day' ON view_time;

-- name: flink_visitors_by_case
-- source: Flink | performance tuning, FILTER on distinct aggregates
-- what: the same by CASE
SELECT count(DISTINCT user_id) AS total_uv,
  count(DISTINCT CASE WHEN device IN ('android', 'iphone') THEN user_id ELSE NULL END) AS app_uv
FROM pageviews WINDOW RANGE '1 day' ON view_time;

-- name: flink_running_visitors
-- source: Flink | SQL, windowing table-valued functions (CUMULATE)
-- what: unique visitors since midnight, every hour
SELECT page, count(DISTINCT user_id) AS uv FROM pageviews
WINDOW CUMULATE '1 day' STEP '1 hour' ON view_time GROUP BY page;

-- name: nexmark_hot_items
-- source: Nexmark for Flink | query 5, hot items
-- what: the auction with the most bids of ten seconds, every two (of ties the least)
SELECT auction, count(*) AS bids FROM bids
WINDOW RANGE '10 seconds' SLIDE '2 seconds' ON bid_time GROUP BY auction ORDER BY bids DESC LIMIT 1;

-- name: nexmark_highest_bid
-- source: Nexmark for Flink | query 7, highest bid
-- what: the highest bid of ten seconds, by whom and for what
SELECT max(price) AS price, max_by(bidder, price) AS bidder, max_by(auction, price) AS auction FROM bids
WINDOW RANGE '10 seconds' SLIDE '10 seconds' ON bid_time;

-- name: nexmark_bidding_statistics
-- source: Nexmark for Flink | query 15, bidding statistics report
-- what: bids, bidders and auctions of a day, by three ranks of price
SELECT count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM bids WINDOW RANGE '1 day' ON bid_time;

-- name: nexmark_channel_statistics
-- source: Nexmark for Flink | query 16, channel statistics report
-- what: the same by channel, and the last minute with a bid
SELECT channel, max(date_trunc('minute', bid_time)) AS last_minute, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids, count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders
FROM bids WINDOW RANGE '1 day' ON bid_time GROUP BY channel;

-- name: nexmark_auction_statistics
-- source: Nexmark for Flink | query 17, auction statistics report
-- what: bids of an auction and day by rank, and their prices
SELECT auction, count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bids WINDOW RANGE '1 day' ON bid_time GROUP BY auction;

-- ------------------------------------------------------------------------------------------ ksqlDB
-- name: ksql_pageviews_per_region
-- source: ksqlDB | aggregate streaming data (tumbling)
-- what: page views of a region and minute
SELECT region, count(*) AS views FROM pageviews WINDOW RANGE '1 minute' ON view_time GROUP BY region;

-- name: ksql_female_pageviews
-- source: ksqlDB | aggregate streaming data (hopping)
-- what: page views by women in regions whose name ends in _6, of 30 seconds, every ten
SELECT region, count(*) AS views FROM pageviews WINDOW RANGE '30 seconds' SLIDE '10 seconds' ON view_time
WHERE upper(gender) = 'FEMALE' AND lower(region) LIKE '%\\_6' GROUP BY region;

-- name: ksql_possible_fraud
-- source: ksqlDB | time and windows, tumbling window
-- what: cards with more than three authorization attempts in five seconds
SELECT card_number, count(*) AS attempts FROM card_attempts WINDOW RANGE '5 seconds' ON attempt_time
GROUP BY card_number HAVING count(*) > 3;

-- name: ksql_possible_anomalies
-- source: ksqlDB | tutorial, event-driven microservice
-- what: cards with three transactions in 30 seconds: the last address, the amount, which transactions
SELECT card_number, last(email) AS email_address, count(*) AS n_attempts, sum(amount) AS total_amount,
  array_agg(DISTINCT tx_id, 100) AS tx_ids
FROM card_attempts WINDOW RANGE '30 seconds' ON attempt_time GROUP BY card_number HAVING count(*) >= 3;

-- name: ksql_average_temperature
-- source: ksqlDB | Kafka tutorials, aggregating the average
-- what: the mean temperature of a device, every hour
SELECT device, avg(temperature) AS avg_reading FROM readings WINDOW RANGE '1 hour' ON reading_time GROUP BY device;

-- name: ksql_latest_location
-- source: ksqlDB | aggregate functions, LATEST_BY_OFFSET
-- what: the last and the first status of a device
SELECT device, last(status) AS latest, first(status) AS earliest FROM readings
WINDOW RANGE '10 minutes' SLIDE '1 minute' ON reading_time GROUP BY device;

-- name: ksql_distinct_pages
-- source: ksqlDB | aggregate functions, COUNT_DISTINCT and COLLECT_SET
-- what: how many pages a user saw, and which
SELECT user_id, count_distinct(page) AS pages, collect_set(page, 20) AS which FROM pageviews
WINDOW RANGE '1 hour' ON view_time GROUP BY user_id;

-- name: ksql_top_orders
-- source: ksqlDB | time and windows, tumbling window (TOPK)
-- what: the five highest orders of a postcode and hour
SELECT zipcode, last_k(amount, 5 ORDER BY CAST(amount * 100 AS bigint)) AS totals FROM orders
WINDOW RANGE '1 hour' SLIDE '1 hour' ON order_time GROUP BY zipcode;

-- name: ksql_reading_spread
-- source: ksqlDB | aggregate functions, STDDEV_SAMPLE and CORRELATION
-- what: how readings vary, and whether heat and damp go together
SELECT location, stddev_samp(temperature) AS spread, corr(temperature, humidity) AS together FROM readings
WINDOW RANGE '1 hour' ON reading_time GROUP BY location;

-- ------------------------------------------------------------------------------------- Materialize
-- name: materialize_last_seconds
-- source: Materialize | temporal filters, sliding window
-- what: events of the last 30 seconds, seen every second
SELECT count(*) AS events FROM actions WINDOW RANGE '30 seconds' SLIDE '1 second' ON action_time;

-- name: materialize_counts_per_minute
-- source: Materialize | temporal filters, periodically emit results
-- what: records of an id and minute, when the minute is over
SELECT user_id, count(user_id) AS records FROM actions WINDOW RANGE '1 minute' ON action_time GROUP BY user_id;

-- name: materialize_last_hour
-- source: Materialize | temporal filters, late arriving events
-- what: orders of the last hour with their value
SELECT country, count(*) AS orders, sum(amount) AS value FROM orders
WINDOW RANGE '1 hour' SLIDE '1 minute' ON order_time WHERE status != 'cancelled' GROUP BY country;

-- name: materialize_filtered_aggregates
-- source: Materialize | SQL, aggregate filters
-- what: bids above a price, beside all
SELECT item, count(*) AS bids, count(*) FILTER (WHERE price > 100) AS high_bids,
  max(price) FILTER (WHERE channel = 'web') AS best_on_web
FROM bids WINDOW RANGE '5 minutes' SLIDE '1 minute' ON bid_time GROUP BY item;

-- name: materialize_top_buyers
-- source: Materialize | patterns, top K in group
-- what: the ten buyers who spent the most
SELECT bidder, sum(price) AS spent FROM bids WINDOW RANGE '1 hour' SLIDE '5 minutes' ON bid_time
GROUP BY bidder ORDER BY spent DESC LIMIT 10;

-- name: materialize_fraud_ratio
-- source: Materialize | quickstart, detecting fraud
-- what: the share of attempts of a merchant that were declined, where there were enough
SELECT merchant, count_if(NOT approved) / count(*) AS declined FROM card_attempts
WINDOW RANGE '10 minutes' SLIDE '1 minute' ON attempt_time GROUP BY merchant HAVING count(*) >= 20;

-- ----------------------------------------------------------------------------------------- Chronon
-- name: chronon_returns_3d
-- source: Chronon | GroupBy, realtime events (returns)
-- what: refunds of a user in 3 days
SELECT user_id, sum(price) AS refund_sum, count(price) AS refund_count, avg(price) AS refund_average FROM purchases
WINDOW RANGE '3 days' SLIDE '1 day' ON ts WHERE refunded GROUP BY user_id;

-- name: chronon_returns_14d
-- source: Chronon | GroupBy, realtime events (returns)
-- what: the same in 14 days
SELECT user_id, sum(price) AS refund_sum, count(price) AS refund_count, avg(price) AS refund_average FROM purchases
WINDOW RANGE '14 days' SLIDE '1 day' ON ts WHERE refunded GROUP BY user_id;

-- name: chronon_returns_30d
-- source: Chronon | GroupBy, realtime events (returns)
-- what: the same in 30 days
SELECT user_id, sum(price) AS refund_sum, count(price) AS refund_count, avg(price) AS refund_average FROM purchases
WINDOW RANGE '30 days' SLIDE '1 day' ON ts WHERE refunded GROUP BY user_id;

-- name: chronon_bucketed_purchases
-- source: Chronon | GroupBy, bucketing
-- what: what a user paid with each kind of card in 14 days
SELECT user_id, card_type, sum(price) AS spent, avg(price) AS mean FROM purchases
WINDOW RANGE '14 days' SLIDE '1 hour' ON ts GROUP BY user_id, card_type;

-- name: chronon_unique_products
-- source: Chronon | GroupBy, sketching aggregations
-- what: distinct products of a user, and percentiles of the price, in sketches
SELECT user_id, count_distinct(product_id) AS products, approx_percentile(price, array(0.25, 0.5, 0.75)) AS prices
FROM purchases WINDOW RANGE '7 days' SLIDE '1 day' ON ts GROUP BY user_id WITH (error = 0.05);

-- name: chronon_price_variance
-- source: Chronon | GroupBy, simple aggregations
-- what: count, variance, least, greatest and last price
SELECT product_id, count(price) AS n, var_pop(price) AS variance, min(price) AS least, max(price) AS greatest,
  last(price) AS latest
FROM purchases WINDOW RANGE '30 days' SLIDE '1 day' ON ts GROUP BY product_id;

-- name: chronon_card_histogram
-- source: Chronon | GroupBy, histogram
-- what: how often each kind of card was used, the most used first
SELECT user_id, top_k(card_type, 20) AS cards FROM purchases WINDOW RANGE '30 days' SLIDE '1 day' ON ts GROUP BY user_id;

-- name: chronon_last_refunds
-- source: Chronon | GroupBy, time based aggregations (LAST_K)
-- what: the last two refunds of a user
SELECT user_id, last_k(CAST(price AS decimal(18, 2)), 2) AS refunds FROM purchases
WINDOW RANGE '30 days' SLIDE '1 day' ON ts WHERE refunded GROUP BY user_id;

-- -------------------------------------------------------------------------------------- MetricFlow
-- name: metricflow_revenue
-- source: dbt MetricFlow | best practices, refactor a mart
-- what: revenue of a calendar month
SELECT sum(amount) AS revenue FROM orders WINDOW RANGE '1 month' ON order_time;

-- name: metricflow_food_revenue
-- source: dbt MetricFlow | best practices, refactor a mart
-- what: revenue from food by CASE, beside that from drinks, and the median order
SELECT sum(CASE WHEN is_food THEN amount ELSE 0 END) AS food_revenue,
  sum(CASE WHEN NOT is_food THEN amount ELSE 0 END) AS drink_revenue, median(amount) AS median_revenue
FROM orders WINDOW RANGE '1 day' ON order_time;

-- name: metricflow_food_share
-- source: dbt MetricFlow | best practices, advanced metrics (ratio)
-- what: the percentage of revenue that comes from food
SELECT 100.0 * sum(amount) FILTER (WHERE is_food) / sum(amount) AS food_revenue_pct
FROM orders WINDOW RANGE '1 day' ON order_time;

-- name: metricflow_gross_profit
-- source: dbt MetricFlow | creating metrics, derived metrics
-- what: revenue less costs
SELECT country, sum(amount) - sum(cost) AS gross_profit FROM orders WINDOW RANGE '1 day' ON order_time GROUP BY country;

-- name: metricflow_weekly_active_users
-- source: dbt MetricFlow | creating metrics, cumulative metrics
-- what: distinct users of the last seven days, every day
SELECT count(DISTINCT user_id) AS wau_rolling_7 FROM pageviews WINDOW RANGE '7 days' SLIDE '1 day' ON view_time;

-- name: metricflow_order_total_mtd
-- source: dbt MetricFlow | cumulative metrics (grain to date)
-- what: order total since the month began, every day
SELECT sum(amount) AS order_total_mtd FROM orders WINDOW CUMULATE '1 month' STEP '1 day' ON order_time;

-- name: metricflow_revenue_growth
-- source: dbt MetricFlow | derived metrics, offset windows
-- what: revenue of 30 days by that of the 30 days before
SELECT sum(amount) OVER now / sum(amount) OVER before AS growth FROM orders
WINDOW now AS (RANGE '30 days'), before AS (RANGE '30 days' ENDING '30 days' AGO) SLIDE '30 days' ON order_time;

-- name: metricflow_cancellation_rate
-- source: dbt MetricFlow | creating metrics, ratio metrics
-- what: cancelled value of all value, for customers in Mexico
SELECT sum(amount) FILTER (WHERE status = 'cancelled') / sum(amount) AS cancellation_rate
FROM orders WINDOW RANGE '1 day' ON order_time WHERE country = 'MX';

-- name: metricflow_enterprise_cancellation_rate
-- source: dbt MetricFlow | creating metrics, ratio metrics
-- what: the same with the cancellations of one tier in the numerator
SELECT sum(amount) FILTER (WHERE status = 'cancelled' AND tier = 'enterprise') / sum(amount) AS cancellation_rate
FROM orders WINDOW RANGE '1 day' ON order_time WHERE country = 'MX';

-- name: metricflow_cancellations
-- source: dbt MetricFlow | creating metrics, simple metrics
-- what: cancelled value of large orders by known users
SELECT sum(amount) AS cancellations FROM orders WINDOW RANGE '1 day' ON order_time
WHERE status = 'cancelled' AND amount > 100 AND user_id IS NOT NULL;

-- name: metricflow_large_order_share
-- source: dbt MetricFlow | measures, percentile and sum_boolean
-- what: how many orders are large, and the 99th percentile of their value
SELECT tier, count_if(amount >= 20) AS large_orders, percentile(amount, 0.99) AS p99 FROM orders
WINDOW RANGE '1 day' ON order_time GROUP BY tier;

-- name: metricflow_average_order_value
-- source: dbt MetricFlow | derived metrics
-- what: revenue by order, in the calendar days of the shop
SELECT country, round(sum(amount) / count(DISTINCT order_id), 2) AS average_order_value
FROM orders WINDOW RANGE '1 day' IN 'Europe/Berlin' ON order_time GROUP BY country;

-- -------------------------------------------------------------------------------------- ClickHouse
-- name: clickhouse_requests_per_hour
-- source: ClickHouse | AggregatingMergeTree, materialized views
-- what: mean, greatest and least response time of a path and hour
SELECT path, avg(latency) AS mean, max(latency) AS slowest, min(latency) AS fastest, count(*) AS requests
FROM requests WINDOW RANGE '1 hour' ON request_time GROUP BY path;

-- name: clickhouse_visits_and_users
-- source: ClickHouse | AggregatingMergeTree, example of an aggregated view
-- what: visits and distinct users
SELECT region, count(DISTINCT session_id) AS visits, count(DISTINCT user_id) AS users FROM pageviews
WINDOW RANGE '1 day' ON view_time GROUP BY region;

-- name: clickhouse_error_rate
-- source: ClickHouse | observability, querying logs
-- what: the share of a host's requests that failed, in per cent
SELECT host, round(100.0 * count_if(status >= 500) / count(*), 2) AS error_rate, count(*) AS requests FROM requests
WINDOW RANGE '5 minutes' SLIDE '1 minute' ON request_time GROUP BY host;

-- name: clickhouse_top_paths
-- source: ClickHouse | observability, querying logs
-- what: the ten paths with the most requests
SELECT path, count(*) AS requests FROM requests WINDOW RANGE '1 hour' ON request_time
GROUP BY path ORDER BY requests DESC LIMIT 10;

-- name: clickhouse_traffic
-- source: ClickHouse | SummingMergeTree, materialized views
-- what: bytes by method and class of status
SELECT method, floor(status / 100) AS class, sum(bytes) AS bytes FROM requests
WINDOW RANGE '1 hour' ON request_time GROUP BY method, floor(status / 100);

-- name: clickhouse_latency_quantiles
-- source: ClickHouse | aggregate functions, quantiles and quantileExact
-- what: median and tail, exact
SELECT host, median(latency) AS p50, percentile(latency, 0.95) AS p95, percentile(latency, 0.99) AS p99 FROM requests
WINDOW RANGE '10 minutes' SLIDE '1 minute' ON request_time GROUP BY host;

-- name: clickhouse_sequence_match
-- source: ClickHouse | parametric aggregate functions, sequenceMatch
-- what: users who viewed, put into the cart and bought, in this order, within an hour
SELECT user_id, count(*) AS sequences FROM actions PATTERN SEQ(view, cart, buy) ON kind PARTITION BY user_id
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON action_time GROUP BY user_id;

-- name: clickhouse_funnel_levels
-- source: ClickHouse | parametric aggregate functions, windowFunnel
-- what: users who viewed, put into the cart and bought within half an hour, by how far they came
SELECT country, reached(1) AS viewed, reached(2) AS carted, reached(3) AS bought FROM actions
PATTERN SEQ(view, cart, buy) ON kind PARTITION BY user_id
WINDOW RANGE '30 minutes' SLIDE '5 minutes' ON action_time GROUP BY country;

-- name: clickhouse_bot_traffic
-- source: ClickHouse | string functions, match and extract
-- what: requests by robots, by a regular expression
SELECT host, count(*) AS requests FROM requests WINDOW RANGE '1 hour' ON request_time
WHERE regexp_like(lower(user_agent), 'bot|crawler|spider') GROUP BY host;

-- name: clickhouse_latest_status
-- source: ClickHouse | aggregate functions, argMax
-- what: the last status of a device and when it was seen
SELECT device, max_by(status, reading_time) AS latest, max(reading_time) AS seen FROM readings
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON reading_time GROUP BY device;

-- --------------------------------------------------------------------------------------- RisingWave
-- name: risingwave_trips_tumble
-- source: RisingWave | time windows, tumble()
-- what: trips and distance of a taxi, every two minutes
SELECT taxi_id, count(*) AS trips, sum(distance) AS distance FROM taxi_trips
WINDOW RANGE '2 minutes' ON completed_at GROUP BY taxi_id;

-- name: risingwave_trips_hop
-- source: RisingWave | time windows, hop()
-- what: trips of two minutes, every minute
SELECT count(trip_id) AS trips, sum(distance) AS distance, sum(duration) AS duration FROM taxi_trips
WINDOW RANGE '2 minutes' SLIDE '1 minute' ON completed_at;

-- name: risingwave_click_through_rate
-- source: RisingWave | tutorial, real-time ad performance
-- what: clicks by impressions of an ad and minute
SELECT ad_id, count(*) FILTER (WHERE kind = 'click') / nullif(count(*) FILTER (WHERE kind = 'impression'), 0) AS ctr
FROM ad_events WINDOW RANGE '5 minutes' SLIDE '1 minute' ON event_time GROUP BY ad_id;

-- name: risingwave_stream_quality
-- source: RisingWave | tutorial, live stream metrics
-- what: bit rate, delay and the share of time that froze
SELECT room_id, sum(video_bps) AS video_bps, avg(video_rtt) AS mean_delay, max(lost_packets) AS worst_loss,
  sum(freeze_ms) / sum(total_ms) AS frozen
FROM stream_stats WINDOW RANGE '1 minute' SLIDE '10 seconds' ON report_time GROUP BY room_id;

-- name: risingwave_low_quality_rooms
-- source: RisingWave | tutorial, live stream metrics
-- what: viewers with a poor picture
SELECT country, count(DISTINCT user_id) AS viewers,
  count(DISTINCT CASE WHEN video_fps < 30 OR video_rtt > 300 THEN user_id END) AS poor
FROM stream_stats WINDOW RANGE '10 minutes' SLIDE '1 minute' ON report_time GROUP BY country;

-- name: risingwave_server_anomalies
-- source: RisingWave | tutorial, server performance anomaly detection
-- what: hosts that are slow on average or fail often
SELECT host, avg(latency) AS mean, count_if(status >= 500) AS failed FROM requests
WINDOW RANGE '1 minute' SLIDE '10 seconds' ON request_time
GROUP BY host HAVING avg(latency) > 500 OR count_if(status >= 500) > 0.05 * count(*);

-- name: risingwave_ohlc
-- source: RisingWave | tutorial, market data
-- what: open, high, low and close of a symbol and minute, and the price weighted by volume
SELECT symbol, first(price) AS open, max(price) AS high, min(price) AS low, last(price) AS close,
  sum(price * volume) / sum(volume) AS vwap
FROM trades WINDOW RANGE '1 minute' ON trade_time GROUP BY symbol;

-- ----------------------------------------------------------------------------------------- Tinybird
-- name: tinybird_top_products
-- source: Tinybird | materialized views, example
-- what: the ten products sold the most on a day, and the sales
SELECT top_k(product_id, 10) AS top_10, sum(price) AS total_sales FROM actions WINDOW RANGE '1 day' ON action_time
WHERE kind = 'buy';

-- name: tinybird_requests_per_tenant
-- source: Tinybird | glossary, materialized view
-- what: requests of a tenant and hour
SELECT client, count(*) AS requests FROM requests WINDOW RANGE '1 hour' ON request_time GROUP BY client;

-- name: tinybird_page_views
-- source: Tinybird | web analytics template
-- what: views and visits of a page on the calendar day of the site
SELECT page, device, count(*) AS hits, count(DISTINCT session_id) AS visits FROM pageviews
WINDOW RANGE '1 day' IN 'Europe/Madrid' ON view_time GROUP BY page, device;

-- name: tinybird_bounce_rate
-- source: Tinybird | web analytics template
-- what: the share of visits with one view, and how long they last
SELECT count_if(bounced) / count(*) AS bounce_rate, avg(duration) AS avg_duration FROM pageviews
WINDOW RANGE '1 hour' SLIDE '1 hour' ON view_time;

-- name: tinybird_referrers
-- source: Tinybird | web analytics template
-- what: visits by the site that they come from
SELECT coalesce(split_part(referrer, '/', 3), 'direct') AS site, count(DISTINCT session_id) AS visits FROM pageviews
WINDOW RANGE '1 day' SLIDE '1 hour' ON view_time GROUP BY coalesce(split_part(referrer, '/', 3), 'direct');

-- ------------------------------------------------------------------------------------- Pinot, Druid
-- name: pinot_distinct_users
-- source: Pinot | aggregation functions, DISTINCTCOUNTHLL
-- what: distinct users by country, from sketches
SELECT country, count_distinct(user_id) AS users FROM actions WINDOW RANGE '1 day' SLIDE '1 hour' ON action_time
GROUP BY country WITH (error = 0.03);

-- name: pinot_latency_tail
-- source: Pinot | aggregation functions, PERCENTILETDIGEST
-- what: the tail of the response times, approximately
SELECT path, approx_percentile(latency, 0.99) AS p99 FROM requests
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON request_time GROUP BY path;

-- name: pinot_price_range
-- source: Pinot | aggregation functions, MINMAXRANGE
-- what: greatest less least price, where it is wide
SELECT symbol, max(price) - min(price) AS spread FROM trades WINDOW RANGE '1 hour' SLIDE '5 minutes' ON trade_time
GROUP BY symbol HAVING max(price) - min(price) > 5;

-- name: pinot_most_frequent
-- source: Pinot | aggregation functions, MODE
-- what: the most frequent size of a trade
SELECT symbol, mode(volume) AS usual FROM trades WINDOW RANGE '1 hour' SLIDE '10 minutes' ON trade_time GROUP BY symbol;

-- name: druid_theta_sketches
-- source: Druid | DataSketches extension, Theta sketch
-- what: sketches of the users who saw an ad, to be intersected later
SELECT campaign, theta_sketch(user_id) AS users FROM ad_events
WINDOW RANGE '1 hour' SLIDE '1 hour' ON event_time GROUP BY campaign;

-- name: druid_spend_quantiles
-- source: Druid | DataSketches extension, quantiles sketch
-- what: sketches of what clicks cost
SELECT campaign, quantile_sketch(spend, 128) AS spend FROM ad_events
WINDOW RANGE '1 hour' SLIDE '1 hour' ON event_time WHERE kind = 'click' GROUP BY campaign;

-- -------------------------------------------------------------------------------------------- Feast
-- name: feast_driver_trips
-- source: Feast | stream feature views, aggregations
-- what: the greatest fare of a day
SELECT driver_id, max(fare) AS max_fare_1d FROM taxi_trips
WINDOW RANGE '1 day' SLIDE '1 hour' ON completed_at GROUP BY driver_id;

-- name: feast_driver_trips_24d
-- source: Feast | stream feature views, aggregations
-- what: the trips of 24 days
SELECT driver_id, count(fare) AS trips_24d FROM taxi_trips
WINDOW RANGE '24 days' SLIDE '1 hour' ON completed_at GROUP BY driver_id;

-- name: feast_driver_acceptance
-- source: Feast | quickstart, driver statistics
-- what: acceptance rate, mean trips a day and conversion of a driver
SELECT driver_id, count_if(accepted) / count(*) AS acc_rate, count(*) / 7 AS avg_daily_trips FROM taxi_trips
WINDOW RANGE '7 days' SLIDE '1 day' ON completed_at GROUP BY driver_id;

-- name: feast_transactions_7d
-- source: Feast | tutorial, fraud detection
-- what: transactions of an account in seven days
SELECT card_number, count(*) AS num_transactions_7d FROM card_attempts
WINDOW RANGE '7 days' SLIDE '1 day' ON attempt_time GROUP BY card_number;

-- name: spark_session_counts
-- source: Spark | Structured Streaming, types of time windows (session windows)
-- what: events of a user until five minutes pass without one
SELECT user_id, count(*) AS events FROM actions WINDOW SESSION GAP '5 minutes' UP TO '1 day' ON action_time
GROUP BY user_id;

-- name: flink_session_totals
-- source: Flink | SQL, window aggregation (SESSION)
-- what: bids on an item until five minutes pass without one
SELECT item, sum(price) AS total_price FROM bids WINDOW SESSION GAP '5 minutes' UP TO '1 day' ON bid_time
GROUP BY item;
