-- Metrics over a stream and dimensions that it joins: forty of dbt MetricFlow, Chronon, Tecton and Looker. Three cannot be
-- expressed, for the reason that stands before them. Columns and names are our own.

-- ------------------------------------------------------------------------------------- dbt MetricFlow
-- name: metricflow_revenue_by_location
-- source: dbt MetricFlow | joins (a foreign entity to a primary one)
-- what: revenue of a day by the name of the location
SELECT l.location_name, sum(amount) AS revenue FROM orders LEFT JOIN locations AS l USING (zipcode)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY l.location_name;

-- name: metricflow_orders_by_customer_type
-- source: dbt MetricFlow | dimensions (categorical), simple metrics
-- what: orders of a day by the type of the customer
SELECT users.customer_type, count(*) AS orders FROM orders LEFT JOIN users USING (user_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY users.customer_type;

-- name: metricflow_large_orders
-- source: dbt MetricFlow | simple metrics, filter with a dimension of another model
-- what: orders of 20 and more at locations that opened before 2024
SELECT count(*) AS large_orders FROM orders JOIN locations USING (zipcode)
WINDOW RANGE '7 days' SLIDE '1 day' ON order_time WHERE amount >= 20 AND locations.opened < DATE '2024-01-01';

-- name: metricflow_food_revenue
-- source: dbt MetricFlow | measures with an expression over a joined dimension
-- what: revenue with food, by the product's item flag
SELECT sum(CASE WHEN products.is_food THEN amount ELSE 0 END) AS food_revenue FROM orders
LEFT JOIN products USING (product_id) WINDOW RANGE '1 day' SLIDE '1 day' ON order_time;

-- name: metricflow_food_revenue_share
-- source: dbt MetricFlow | ratio metrics, filter of the numerator
-- what: the share of revenue that is food, by location
SELECT location_name, sum(amount) FILTER (WHERE products.is_food) / sum(amount) AS food_share FROM orders
LEFT JOIN products USING (product_id) LEFT JOIN locations USING (zipcode)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY location_name;

-- name: metricflow_supply_cost
-- source: dbt MetricFlow | joins, fan-out joins
-- what: what the supplies of the sold products cost; a product has several supplies
-- class: joins that multiply or go by a range
-- code: HDL-464
-- reason: the join multiplies events: a dimension has one row of a key (MetricFlow refuses it, too)
SELECT sum(supplies.supply_cost) AS supply_cost FROM orders JOIN supplies USING (product_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time;

-- name: metricflow_revenue_by_continent
-- source: dbt MetricFlow | joins, multi-hop joins
-- what: revenue by the region of the customer's region: two joins on the way
SELECT r.continent, sum(amount) AS revenue FROM orders LEFT JOIN users AS u USING (user_id)
LEFT JOIN regions AS r ON u.region_id = r.region_id
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY r.continent;

-- name: metricflow_weekly_active_customers
-- source: dbt MetricFlow | cumulative metrics (window) by a joined dimension
-- what: customers with an order in seven days, every day, by the region of the customer
SELECT region, count(DISTINCT user_id) AS customers FROM orders LEFT JOIN users USING (user_id)
LEFT JOIN regions ON users.region_id = regions.region_id
WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY region;

-- name: metricflow_revenue_to_date
-- source: dbt MetricFlow | cumulative metrics (grain_to_date)
-- what: revenue since the month began, by location
SELECT locations.location_name, sum(amount) AS revenue FROM orders JOIN locations USING (zipcode)
WINDOW CUMULATE '1 month' STEP '1 day' ON order_time GROUP BY locations.location_name;

-- name: metricflow_revenue_by_tier
-- source: dbt MetricFlow | joins, SCD type II (validity_params)
-- what: revenue by the tier that the customer had when ordering
SELECT t.tier, sum(amount) AS revenue FROM orders JOIN account_tiers AS t USING (user_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY t.tier;

-- ------------------------------------------------------------------------------------------- Chronon
-- name: chronon_verified_purchases
-- source: Chronon | quickstart, purchases with the users' entity source
-- what: purchases of 14 days by users whose email is verified, by user
SELECT purchases.user_id, sum(price) AS spent, count(*) AS purchases FROM purchases JOIN users USING (user_id)
WINDOW RANGE '14 days' SLIDE '1 day' ON ts WHERE users.email_verified GROUP BY purchases.user_id;

-- name: chronon_refunds_by_verification
-- source: Chronon | quickstart, returns GroupBy and users GroupBy in one Join
-- what: the share of refunded purchases of 30 days, by whether the email is verified
SELECT email_verified, avg(CASE WHEN refunded THEN 1.0 ELSE 0.0 END) AS refunds FROM purchases
LEFT JOIN users USING (user_id) WINDOW RANGE '30 days' SLIDE '1 day' ON ts GROUP BY email_verified;

-- name: chronon_viewed_prices
-- source: Chronon | chaining features (JoinSource)
-- what: the mean list price of what a user looked at in seven days
SELECT actions.user_id, avg(p.retail_price) AS mean_price FROM actions JOIN products AS p USING (product_id)
WINDOW RANGE '7 days' SLIDE '1 day' ON action_time WHERE kind = 'view' GROUP BY actions.user_id;

-- name: chronon_last_category
-- source: Chronon | GroupBy, time based aggregations (LAST), chained with an entity
-- what: the category of a user's last product, and of the first
SELECT actions.user_id, last(products.category) AS last_category, first(products.category) AS first_category
FROM actions JOIN products USING (product_id) WINDOW RANGE '7 days' SLIDE '1 day' ON action_time
GROUP BY actions.user_id;

-- name: chronon_brands_of_a_user
-- source: Chronon | GroupBy, sketching aggregations (APPROX_UNIQUE_COUNT)
-- what: about how many brands a user bought of in 30 days
SELECT purchases.user_id, approx_count_distinct(products.brand) AS brands FROM purchases
JOIN products USING (product_id) WINDOW RANGE '30 days' SLIDE '1 day' ON ts GROUP BY purchases.user_id;

-- name: chronon_spent_by_category
-- source: Chronon | GroupBy, bucketing
-- what: what a user spent in each category
SELECT purchases.user_id, products.category, sum(price) AS spent FROM purchases LEFT JOIN products USING (product_id)
WINDOW RANGE '30 days' SLIDE '1 day' ON ts GROUP BY purchases.user_id, products.category;

-- name: chronon_purchases_as_of
-- source: Chronon | Join, temporal accuracy of an entity source with mutations
-- what: purchases by the tier that was known of the user at the time of the purchase
SELECT coalesce(account_tiers.tier, 'none') AS tier, count(*) AS purchases, max(price) AS largest FROM purchases
LEFT JOIN account_tiers USING (user_id) WINDOW RANGE '1 day' SLIDE '1 hour' ON ts
GROUP BY coalesce(account_tiers.tier, 'none');

-- name: chronon_price_percentiles
-- source: Chronon | GroupBy, sketching aggregations (APPROX_PERCENTILE)
-- what: percentiles of the price in a category
SELECT products.category, approx_percentile(price, array(0.5, 0.95), 100) AS prices FROM purchases
JOIN products USING (product_id) WINDOW RANGE '7 days' SLIDE '1 day' ON ts GROUP BY products.category;

-- name: chronon_unknown_products
-- source: Chronon | Join, left outer: keys without a row stay
-- what: purchases of products that no row is known of
SELECT count(*) AS purchases, count_if(products.product_id IS NULL) AS of_unknown FROM purchases
LEFT JOIN products USING (product_id) WINDOW RANGE '1 day' SLIDE '1 hour' ON ts;

-- name: chronon_top_categories
-- source: Chronon | GroupBy, sketching aggregations (HISTOGRAM, TOP_K)
-- what: the three most frequent categories of a country
SELECT users.country, top_k(products.category, 3) AS categories FROM purchases JOIN users USING (user_id)
JOIN products USING (product_id) WINDOW RANGE '7 days' SLIDE '1 day' ON ts GROUP BY users.country;

-- -------------------------------------------------------------------------------------------- Tecton
-- name: tecton_spend_by_merchant_category
-- source: Tecton | stream feature views, a stream source joined with a batch source
-- what: what a card spent in a category of merchants in 30 days
SELECT card_number, m.category, sum(amount) AS spent FROM card_attempts JOIN merchants AS m USING (merchant)
WINDOW RANGE '30 days' SLIDE '1 day' ON attempt_time WHERE approved GROUP BY card_number, m.category;

-- name: tecton_distinct_merchant_countries
-- source: Tecton | aggregation functions, approx_count_distinct
-- what: how many countries a card was used in within a day, every ten minutes
SELECT card_number, count(DISTINCT merchants.country) AS countries FROM card_attempts
LEFT JOIN merchants USING (merchant) WINDOW RANGE '1 day' SLIDE '10 minutes' ON attempt_time GROUP BY card_number;

-- name: tecton_refusal_rate
-- source: Tecton | aggregation functions, mean of a flag
-- what: the share of refused attempts by the region of the merchant: merchant to country's region
SELECT regions.region, avg(CASE WHEN approved THEN 0.0 ELSE 1.0 END) AS refused, count(*) AS attempts
FROM card_attempts JOIN merchants USING (merchant) JOIN regions ON merchants.region_id = regions.region_id
WINDOW RANGE '7 days' SLIDE '1 day' ON attempt_time GROUP BY regions.region HAVING count(*) > 2;

-- name: tecton_abroad
-- source: Tecton | feature views with several sources (transactions, users)
-- what: orders from another country than the user's
SELECT orders.user_id, count(*) FILTER (WHERE orders.country <> users.country) AS abroad, count(*) AS orders
FROM orders JOIN users USING (user_id) WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY orders.user_id;

-- name: tecton_credit_use
-- source: Tecton | on-demand feature views over two feature views
-- what: the largest part of the user's credit limit that one order took
SELECT orders.user_id, max(amount / users.credit_limit) AS largest_part FROM orders JOIN users USING (user_id)
WINDOW RANGE '1 day' SLIDE '1 hour' ON order_time GROUP BY orders.user_id;

-- name: tecton_spend_by_age
-- source: Tecton | batch feature views, user age groups
-- what: the mean order by the age of the user
SELECT CASE WHEN users.age < 18 THEN 'minor' WHEN users.age < 65 THEN 'adult' ELSE 'senior' END AS age_group,
avg(amount) AS mean_order FROM orders JOIN users USING (user_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time
GROUP BY CASE WHEN users.age < 18 THEN 'minor' WHEN users.age < 65 THEN 'adult' ELSE 'senior' END;

-- name: tecton_last_categories
-- source: Tecton | aggregation functions, last_distinct(n)
-- what: the last three different categories of merchants of a card
SELECT card_number, last_distinct(merchants.category, 3) AS categories FROM card_attempts
JOIN merchants USING (merchant) WINDOW RANGE '1 day' SLIDE '1 hour' ON attempt_time GROUP BY card_number;

-- name: tecton_click_rate
-- source: Tecton | tutorial, ad click rates by content keyword
-- what: clicks by impressions for each keyword of the ad
SELECT ads.keyword, count(*) FILTER (WHERE kind = 'click') / count(*) FILTER (WHERE kind = 'impression') AS rate
FROM ad_events JOIN ads USING (ad_id) WINDOW RANGE '1 hour' SLIDE '5 minutes' ON event_time GROUP BY ads.keyword;

-- name: tecton_spread_by_tier
-- source: Tecton | aggregation functions, stddev_samp
-- what: how orders vary within a tier of users
SELECT users.tier, stddev(amount) AS spread FROM orders JOIN users USING (user_id)
WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY users.tier;

-- name: tecton_distance_from_home
-- source: Tecton | on-demand feature views, distance of the transaction
-- what: how far from the user's home goods are sent from: the center of the product
SELECT avg(sqrt(power(centers.lat - users.lat, 2) + power(centers.lon - users.lon, 2))) AS mean_distance FROM orders
JOIN users USING (user_id) JOIN products USING (product_id) JOIN centers ON products.center_id = centers.center_id
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time;

-- -------------------------------------------------------------------------------------------- Looker
-- name: looker_sales_by_category
-- source: Looker | explores and joins (many_to_one, left_outer)
-- what: sales of a day by category and department of the product
SELECT p.category, p.department, sum(amount) AS sales FROM orders AS o LEFT JOIN products AS p
ON o.product_id = p.product_id WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY p.category, p.department;

-- name: looker_gross_margin
-- source: Looker | measures of type sum over fields of several views
-- what: margin by brand
SELECT products.brand, sum(amount - products.unit_cost * quantity) AS margin FROM orders
JOIN products USING (product_id) WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY products.brand;

-- name: looker_users_by_source
-- source: Looker | measures of type count_distinct
-- what: buyers by traffic source, of sources with more than two
SELECT traffic_source, count(DISTINCT user_id) AS buyers FROM orders LEFT JOIN users USING (user_id)
WINDOW RANGE '30 days' SLIDE '1 day' ON order_time GROUP BY traffic_source HAVING count(DISTINCT user_id) > 2;

-- name: looker_filtered_measure
-- source: Looker | filtered measures (filters: [users.gender: "Female"])
-- what: orders of women by the product's department
SELECT products.department, count(*) FILTER (WHERE users.gender = 'female') AS by_women FROM orders
LEFT JOIN users USING (user_id) LEFT JOIN products USING (product_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY products.department;

-- name: looker_sales_by_center
-- source: Looker | joining through an intermediate view
-- what: the mean sale by distribution center
SELECT c.center_name, avg(amount) AS mean_sale FROM orders JOIN products AS p USING (product_id)
JOIN centers AS c ON c.center_id = p.center_id
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time GROUP BY c.center_name;

-- name: looker_billing_and_shipping
-- source: Looker | joining a view twice (from)
-- what: orders whose country is in another continent than the user's region: one table, joined twice
SELECT home.continent AS home, sold.continent AS sold, count(*) AS orders FROM orders
JOIN users USING (user_id) JOIN products USING (product_id)
JOIN regions AS home ON home.region_id = users.region_id JOIN regions AS sold ON sold.region_id = products.region_id
WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY home.continent, sold.continent;

-- name: looker_always_where
-- source: Looker | sql_always_where and sql_on with further conditions
-- what: orders of active users outside of one brand
SELECT users.country, count(*) AS orders FROM orders JOIN users USING (user_id) LEFT JOIN products USING (product_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON order_time
WHERE users.is_active AND (products.brand IS NULL OR products.brand NOT LIKE 'x%') GROUP BY users.country;

-- name: looker_fiscal_periods
-- source: Looker | sql_on with a range (a calendar of fiscal periods)
-- what: orders by the fiscal period whose first and last day are around the order
-- class: joins that multiply or go by a range
-- code: HDL-464
-- reason: a join by a range, not by a key; a calendar by day joins with the date of the event
SELECT periods.period, count(*) AS orders FROM orders
JOIN periods ON orders.order_time >= periods.first_day AND orders.order_time < periods.end_day
WINDOW RANGE '30 days' SLIDE '1 day' ON order_time GROUP BY periods.period;

-- name: looker_symmetric_aggregates
-- source: Looker | symmetric aggregates (one_to_many)
-- what: revenue of the orders of users with page views: two tables of events
-- class: joins of streams
-- code: HDL-103
-- reason: a join of two streams
SELECT count(DISTINCT orders.user_id) AS users, sum(amount) AS revenue FROM orders
LEFT JOIN pageviews ON orders.user_id = pageviews.user_id WINDOW RANGE '1 day' SLIDE '1 day' ON order_time;

-- name: looker_top_brands
-- source: Looker | row limits and sorts of an explore
-- what: the five brands that sold the most
SELECT products.brand, sum(amount) AS sales FROM orders JOIN products USING (product_id)
WINDOW RANGE '7 days' SLIDE '1 day' ON order_time GROUP BY products.brand ORDER BY sales DESC LIMIT 5;
