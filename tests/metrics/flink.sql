-- The corpus' metrics of Flink and of Nexmark for Flink in Flink's own SQL, with our columns. Where Nexmark joins a stream
-- with its own aggregates (queries 5 and 7), there is a window Top-N, or none.
CREATE TABLE bids (
  bid_time TIMESTAMP(3), price DECIMAL(10, 2), item STRING, WATERMARK FOR bid_time AS bid_time - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka');

SET 'table.exec.mini-batch.enabled' = 'true';

INSERT INTO flink_supplier_revenue
SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, supplier_id;

INSERT INTO flink_total_revenue
SELECT window_start, window_end, SUM(price) AS total_price
FROM HOP(DATA => TABLE bids, TIMECOL => DESCRIPTOR(bid_time), SLIDE => INTERVAL '5' MINUTES, SIZE => INTERVAL '10' MINUTES)
GROUP BY window_start, window_end;

INSERT INTO flink_cumulative_revenue
SELECT window_start, window_end, SUM(price) AS total_price
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES))
GROUP BY window_start, window_end;

INSERT INTO flink_revenue_sets
SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, GROUPING SETS ((supplier_id), ());

INSERT INTO flink_top_suppliers
SELECT *
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC) AS rownum
  FROM (
    SELECT window_start, window_end, supplier_id, SUM(price) AS total, COUNT(*) AS bids
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '10' MINUTES))
    GROUP BY window_start, window_end, supplier_id
  )
) WHERE rownum <= 3;

INSERT INTO flink_daily_orders
SELECT user_id, TUMBLE_START(order_time, INTERVAL '1' DAY) AS w_start, SUM(amount) AS amount
FROM orders GROUP BY TUMBLE(order_time, INTERVAL '1' DAY), user_id;

INSERT INTO flink_visitors_by_platform
SELECT window_start, COUNT(DISTINCT user_id) AS total_uv,
  COUNT(DISTINCT user_id) FILTER (WHERE device IN ('android', 'iphone')) AS app_uv,
  COUNT(DISTINCT user_id) FILTER (WHERE device IN ('wap', 'other')) AS web_uv
FROM TABLE(TUMBLE(TABLE pageviews, DESCRIPTOR(view_time), INTERVAL '1' DAY)) GROUP BY window_start, window_end;

INSERT INTO flink_visitors_by_case
SELECT COUNT(DISTINCT user_id) AS total_uv,
  COUNT(DISTINCT CASE WHEN device IN ('android', 'iphone') THEN user_id ELSE NULL END) AS app_uv
FROM TABLE(TUMBLE(TABLE pageviews, DESCRIPTOR(view_time), INTERVAL '1' DAY)) GROUP BY window_start, window_end;

EXECUTE STATEMENT SET BEGIN
INSERT INTO flink_running_visitors
SELECT window_end, page, COUNT(DISTINCT user_id) AS uv
FROM TABLE(CUMULATE(TABLE pageviews, DESCRIPTOR(view_time), INTERVAL '1' HOUR, INTERVAL '1' DAY))
GROUP BY window_start, window_end, page;

INSERT INTO flink_cascaded_revenue
SELECT SUM(price) AS total_price, COUNT(*) AS bids FROM bids GROUP BY TUMBLE(bid_time, INTERVAL '10' MINUTE);
END;

INSERT INTO nexmark_hot_items
SELECT auction, num AS bids FROM (
  SELECT auction, num, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY num DESC) AS r
  FROM (
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  )
) WHERE r = 1;

INSERT INTO nexmark_bidding_statistics
SELECT COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '1' DAY)) GROUP BY window_start, window_end;

INSERT INTO nexmark_channel_statistics
SELECT channel, MAX(FLOOR(bid_time TO MINUTE)) AS last_minute, COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids, COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '1' DAY)) GROUP BY window_start, window_end, channel;

INSERT INTO nexmark_auction_statistics
SELECT auction, COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bid_time), INTERVAL '1' DAY)) GROUP BY window_start, window_end, auction;

-- name: flink_session_totals
SELECT item, SUM(price) AS total_price
FROM TABLE(SESSION(TABLE bids PARTITION BY item, DESCRIPTOR(bid_time), INTERVAL '5' MINUTES))
GROUP BY item, window_start, window_end;
