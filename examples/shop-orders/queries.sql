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
