-- name: turnover
SELECT country, count(*) AS orders, sum(euros) AS euros
FROM shop WINDOW RANGE '6 hours' SLIDE '3 hours' ON at
WHERE kind = 'order' GROUP BY country;

-- name: bought_after_looking
SELECT country, count(*) AS sequences, sum(order.euros) AS euros
FROM shop
PATTERN SEQ(view, cart, order) ON kind PARTITION BY customer
WINDOW RANGE '2 hours' SLIDE '1 hour' ON at
GROUP BY country HAVING count(*) > 2;

-- name: by_department
SELECT coalesce(department, 'not listed') AS department, count(*) AS orders, sum(euros) AS euros
FROM shop
LEFT JOIN products USING (product)
WINDOW RANGE '1 day' SLIDE '1 day' ON at
WHERE kind = 'order'
GROUP BY coalesce(department, 'not listed');
