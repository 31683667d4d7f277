-- What the duty managers keep an eye on (stream: streams.yaml). They do not mind when exactly their figures are
-- refreshed, as long as none is older than they allow: SLIDE AT MOST. The schedule makes them ride along with
-- one another, and any plain SLIDE rides along with the same runs.

-- name: watch_departures
-- owner: duty-managers
-- table: watch_departures
SELECT origin, count(*) AS departures, sum(distance) AS miles
FROM flights
WINDOW RANGE '6 hours' SLIDE AT MOST '3 hours' ON event_time
GROUP BY origin;

-- name: watch_longest_hop
-- owner: duty-managers
SELECT origin, max(distance) AS longest, max(air_time) AS longest_in_the_air
FROM flights
WINDOW RANGE '12 hours' SLIDE AT MOST '4 hours' ON event_time
GROUP BY origin;

-- name: watch_delays
-- owner: duty-managers
SELECT origin, avg(dep_delay) AS mean_delay, percentile(dep_delay, 0.9) AS p90
FROM flights
WINDOW RANGE '12 hours' SLIDE AT MOST '5 hours' ON event_time
WHERE dep_delay > 0
GROUP BY origin;

-- name: watch_day
-- owner: duty-managers
-- table: watch_day, change data feed
SELECT origin, count(*) AS departures, avg(distance) AS mean_distance
FROM flights
WINDOW RANGE '24 hours' SLIDE AT MOST '7 hours' ON event_time
GROUP BY origin;

-- name: watch_two_days
-- owner: network-planning
SELECT origin, count(*) AS departures, min(distance) AS shortest
FROM flights
WINDOW RANGE '48 hours' SLIDE AT MOST '8 hours' ON event_time
GROUP BY origin;

-- name: watch_delays_day
-- owner: network-planning
SELECT origin, avg(dep_delay) AS mean_delay, max(dep_delay) AS worst
FROM flights
WINDOW RANGE '24 hours' SLIDE AT MOST '8 hours' ON event_time
WHERE dep_delay > 0
GROUP BY origin;

-- name: watch_boston_shuttles
-- owner: network-planning
SELECT count(*) AS rotations
FROM flights
PATTERN SEQ(BOS, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '12 hours' SLIDE AT MOST '6 hours' ON event_time;
