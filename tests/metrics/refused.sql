-- Metrics that the language cannot express, as near as they can be written, with the code that refuses them and why.

-- name: spark_clicks_after_impressions
-- source: Spark | Structured Streaming, stream-stream joins
-- what: clicks within an hour of the impression of the same ad
-- class: joins of streams
-- code: HDL-103
-- reason: a join of two streams
SELECT i.ad_id, count(*) AS clicks FROM ad_events i JOIN ad_events c ON i.ad_id = c.ad_id
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON event_time GROUP BY ad_id;

-- name: flink_top_bids
-- source: Flink | SQL, window Top-N (after a windowing function)
-- what: the three highest bids of every ten minutes, as they are
-- class: events as answers
-- code: HDL-103
-- reason: it answers events and not groups
SELECT item, price, row_number() OVER (ORDER BY price DESC) AS place FROM bids
WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON bid_time;

-- name: metricflow_order_total_l1m
-- source: dbt MetricFlow | cumulative metrics (window of a month)
-- what: order total of the trailing calendar month, every day
-- class: calendars
-- code: HDL-241
-- reason: calendar months slide by months; a range of 30 days slides by days
SELECT sum(amount) AS order_total_l1m FROM orders WINDOW RANGE '1 month' SLIDE '1 day' ON order_time;

-- name: metricflow_visit_to_buy
-- source: dbt MetricFlow | conversion metrics
-- what: the share of visits that a purchase follows within seven days, each purchase counted for its last visit
-- class: sequences
-- code: HDL-103
-- reason: a share of two selections; PATTERN SEQ(visit, NOT visit, buy) counts purchases, each for its last visit
SELECT count(*) / (SELECT count(*) FROM actions) AS conversion FROM actions PATTERN SEQ(visit, buy) ON kind
PARTITION BY user_id WINDOW RANGE '7 days' SLIDE '1 day' ON action_time;

-- name: clickhouse_retention
-- source: ClickHouse | parametric aggregate functions, retention
-- what: of the users of one day, the share that comes back on the next
-- class: queries over answers
-- code: HDL-104
-- reason: an aggregate over the aggregates of users
SELECT sum(retention(kind = 'visit', kind = 'return')) AS returned FROM actions
WINDOW RANGE '2 days' SLIDE '1 day' ON action_time;
