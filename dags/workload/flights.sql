-- What a flight-operations team watches on the departures from New York City (stream: streams.yaml).
-- Event time is the scheduled departure; dep_delay and arr_delay are minutes, negative if early, null if the
-- flight was cancelled (arr_delay also if it was diverted).

-- ==================================================================
-- Departure boards: what is leaving now, refreshed every few minutes
-- ==================================================================

-- name: departures_15m
-- owner: flight-ops
SELECT count(*) AS departures
FROM flights
WINDOW RANGE '15 minutes' SLIDE '5 minutes' ON event_time;

-- name: departures_1h
-- owner: flight-ops
SELECT count(*) AS departures, sum(distance) AS miles
FROM flights
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON event_time;

-- name: departures_90m
-- owner: flight-ops
SELECT count(*) AS departures
FROM flights
WINDOW RANGE '90 minutes' SLIDE '20 minutes' ON event_time;

-- name: departures_50m
-- owner: flight-ops
SELECT count(*) AS departures, avg(distance) AS mean_distance
FROM flights
WINDOW RANGE '50 minutes' SLIDE '15 minutes' ON event_time;

-- name: airport_departures_15m
-- owner: flight-ops
SELECT origin, count(*) AS departures
FROM flights
WINDOW RANGE '15 minutes' SLIDE '5 minutes' ON event_time
GROUP BY origin;

-- name: airport_departures_1h
-- owner: flight-ops
SELECT origin, count(*) AS departures, min(distance) AS shortest, max(distance) AS longest
FROM flights
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON event_time
GROUP BY origin;

-- name: airport_departures_2h
-- owner: flight-ops
SELECT origin, count(*) AS departures, count(tailnum) AS with_aircraft
FROM flights
WINDOW RANGE '2 hours' SLIDE '15 minutes' ON event_time
GROUP BY origin;

-- name: airport_departures_100m
-- owner: flight-ops
SELECT origin, count(*) AS departures
FROM flights
WINDOW RANGE '100 minutes' SLIDE '30 minutes' ON event_time
GROUP BY origin;

-- ==========================================================
-- Departure delays by airport: is an airport falling behind?
-- ==========================================================

-- name: airport_delay_30m
-- owner: flight-ops
SELECT origin, avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '30 minutes' SLIDE '5 minutes' ON event_time
GROUP BY origin;

-- name: airport_delay_1h
-- owner: flight-ops
SELECT origin, avg(dep_delay) AS mean_delay, stddev(dep_delay) AS spread, count(dep_delay) AS departed
FROM flights
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON event_time
GROUP BY origin;

-- name: airport_delay_3h
-- owner: flight-ops
SELECT origin, avg(dep_delay) AS mean_delay, min(dep_delay) AS best_delay, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '3 hours' SLIDE '30 minutes' ON event_time
GROUP BY origin;

-- name: airport_delay_100m
-- owner: flight-ops
SELECT origin, avg(dep_delay) AS mean_delay
FROM flights
WINDOW RANGE '100 minutes' SLIDE '15 minutes' ON event_time
GROUP BY origin;

-- name: airport_delay_minutes_lost
-- owner: flight-ops
SELECT origin, sum(dep_delay) AS minutes_lost, count(*) AS flights
FROM flights
WINDOW RANGE '2 hours' SLIDE '20 minutes' ON event_time
WHERE dep_delay > 0
GROUP BY origin;

-- name: airport_arrival_delay_4h
-- owner: flight-ops
SELECT origin, avg(arr_delay) AS mean_delay, stddev(arr_delay) AS spread
FROM flights
WINDOW RANGE '4 hours' SLIDE '1 hour' ON event_time
GROUP BY origin;

-- name: airport_severe_delays_2h
-- owner: flight-ops
SELECT origin, count(*) AS severe, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '2 hours' SLIDE '15 minutes' ON event_time
WHERE dep_delay > 60
GROUP BY origin;

-- name: airport_extreme_delays_1d
-- owner: flight-ops
SELECT origin, count(*) AS extreme, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '1 day' SLIDE '1 hour' ON event_time
WHERE dep_delay > 180
GROUP BY origin;

-- name: jfk_delay_45m
-- owner: flight-ops
SELECT avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '45 minutes' SLIDE '10 minutes' ON event_time
WHERE origin = 'JFK';

-- name: newark_delay_45m
-- owner: flight-ops
SELECT avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '45 minutes' SLIDE '10 minutes' ON event_time
WHERE origin = 'EWR';

-- name: laguardia_delay_45m
-- owner: flight-ops
SELECT avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '45 minutes' SLIDE '10 minutes' ON event_time
WHERE origin = 'LGA';

-- ===========================
-- Whole network: control room
-- ===========================

-- name: network_delay_30m
-- owner: network-control
SELECT avg(dep_delay) AS mean_delay
FROM flights
WINDOW RANGE '30 minutes' SLIDE '5 minutes' ON event_time;

-- name: network_delay_2h
-- owner: network-control
SELECT avg(dep_delay) AS mean_delay, variance(dep_delay) AS delay_variance
FROM flights
WINDOW RANGE '2 hours' SLIDE '15 minutes' ON event_time;

-- name: network_delay_5h
-- owner: network-control
-- table: network_delay_5h
SELECT avg(dep_delay) AS mean_delay, stddev(dep_delay) AS spread
FROM flights
WINDOW RANGE '5 hours' SLIDE '2 hours' ON event_time;

-- name: network_on_time_1h
-- owner: network-control
SELECT count(*) AS on_time
FROM flights
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON event_time
WHERE dep_delay <= 15;

-- name: network_late_1h
-- owner: network-control
SELECT count(*) AS late, sum(dep_delay) AS minutes_lost
FROM flights
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON event_time
WHERE dep_delay > 15;

-- name: network_made_up_time_3h
-- owner: network-control
SELECT count(*) AS flights, avg(dep_delay - arr_delay) AS minutes_made_up
FROM flights
WINDOW RANGE '3 hours' SLIDE '30 minutes' ON event_time
WHERE arr_delay < dep_delay;

-- name: network_air_time_6h
-- owner: network-control
SELECT sum(air_time) AS minutes_flown, avg(air_time) AS mean_air_time
FROM flights
WINDOW RANGE '6 hours' SLIDE '1 hour' ON event_time
WHERE NOT cancelled;

-- name: network_worst_1d
-- owner: network-control
SELECT max(dep_delay) AS worst_departure, max(arr_delay) AS worst_arrival
FROM flights
WINDOW RANGE '1 day' SLIDE '3 hours' ON event_time;

-- name: network_trend_2d
-- owner: network-control
SELECT count(*) AS flights, avg(arr_delay) AS mean_arrival_delay
FROM flights
WINDOW RANGE '2 days' SLIDE '6 hours' ON event_time;

-- name: network_week
-- owner: network-control
SELECT count(*) AS flights, sum(distance) AS miles, stddev(arr_delay) AS spread
FROM flights
WINDOW RANGE '7 days' SLIDE '12 hours' ON event_time;

-- ========================
-- Carriers: service levels
-- ========================

-- name: carrier_flights_1h
-- owner: carrier-relations
SELECT carrier, count(*) AS flights
FROM flights
WINDOW RANGE '1 hour' SLIDE '15 minutes' ON event_time
GROUP BY carrier;

-- name: carrier_delay_1h
-- owner: carrier-relations
SELECT carrier, avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay
FROM flights
WINDOW RANGE '1 hour' SLIDE '15 minutes' ON event_time
GROUP BY carrier;

-- name: carrier_delay_3h
-- owner: carrier-relations
SELECT carrier, avg(dep_delay) AS mean_delay, stddev(dep_delay) AS spread
FROM flights
WINDOW RANGE '3 hours' SLIDE '30 minutes' ON event_time
GROUP BY carrier;

-- name: carrier_delay_7h
-- owner: carrier-relations
SELECT carrier, avg(dep_delay) AS mean_delay, avg(arr_delay) AS mean_arrival_delay
FROM flights
WINDOW RANGE '7 hours' SLIDE '2 hours' ON event_time
GROUP BY carrier;

-- name: carrier_on_time_6h
-- owner: carrier-relations
SELECT carrier, count(*) AS on_time
FROM flights
WINDOW RANGE '6 hours' SLIDE '1 hour' ON event_time
WHERE arr_delay <= 15
GROUP BY carrier;

-- name: carrier_late_6h
-- owner: carrier-relations
SELECT carrier, count(*) AS late, sum(arr_delay) AS minutes_late
FROM flights
WINDOW RANGE '6 hours' SLIDE '1 hour' ON event_time
WHERE arr_delay > 15
GROUP BY carrier;

-- name: carrier_early_6h
-- owner: carrier-relations
SELECT carrier, count(*) AS early, min(arr_delay) AS earliest
FROM flights
WINDOW RANGE '6 hours' SLIDE '1 hour' ON event_time
WHERE arr_delay < 0
GROUP BY carrier;

-- name: carrier_day
-- owner: carrier-relations
SELECT carrier, count(*) AS flights, sum(distance) AS miles, avg(arr_delay) AS mean_arrival_delay
FROM flights
WINDOW RANGE '1 day' SLIDE '1 hour' ON event_time
GROUP BY carrier;

-- name: carrier_week
-- owner: carrier-relations
SELECT
    carrier,
    count(*) AS flights,
    avg(arr_delay) AS mean_arrival_delay,
    variance(arr_delay) AS delay_variance
FROM flights
WINDOW RANGE '7 days' SLIDE '1 day' ON event_time
GROUP BY carrier;

-- name: majors_delay_2h
-- owner: carrier-relations
SELECT carrier, avg(dep_delay) AS mean_delay, count(*) AS flights
FROM flights
WINDOW RANGE '2 hours' SLIDE '30 minutes' ON event_time
WHERE carrier IN ('UA', 'AA', 'DL', 'US')
GROUP BY carrier;

-- name: low_cost_delay_2h
-- owner: carrier-relations
SELECT carrier, avg(dep_delay) AS mean_delay, count(*) AS flights
FROM flights
WINDOW RANGE '2 hours' SLIDE '30 minutes' ON event_time
WHERE carrier IN ('B6', 'WN', 'F9', 'FL', 'VX')
GROUP BY carrier;

-- name: regional_delay_3h
-- owner: carrier-relations
SELECT carrier, avg(dep_delay) AS mean_delay, count(*) AS flights
FROM flights
WINDOW RANGE '3 hours' SLIDE '45 minutes' ON event_time
WHERE carrier IN ('EV', 'MQ', '9E', 'YV', 'OO')
GROUP BY carrier;

-- name: carrier_airport_day
-- owner: carrier-relations
SELECT carrier, origin, count(*) AS flights, avg(dep_delay) AS mean_delay
FROM flights
WINDOW RANGE '1 day' SLIDE '2 hours' ON event_time
GROUP BY carrier, origin;

-- ==============================
-- Cancellations: rebooking desks
-- ==============================

-- name: cancellations_1h
-- owner: rebooking
SELECT count(*) AS cancelled_flights
FROM flights
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON event_time
WHERE cancelled;

-- name: cancellations_airport_2h
-- owner: rebooking
SELECT origin, count(*) AS cancelled_flights
FROM flights
WINDOW RANGE '2 hours' SLIDE '15 minutes' ON event_time
WHERE cancelled
GROUP BY origin;

-- name: cancellations_airport_8h
-- owner: rebooking
SELECT origin, count(*) AS cancelled_flights
FROM flights
WINDOW RANGE '8 hours' SLIDE '3 hours' ON event_time
WHERE cancelled
GROUP BY origin;

-- name: cancellations_carrier_6h
-- owner: rebooking
SELECT carrier, count(*) AS cancelled_flights
FROM flights
WINDOW RANGE '6 hours' SLIDE '30 minutes' ON event_time
WHERE cancelled
GROUP BY carrier;

-- name: cancellations_carrier_day
-- owner: rebooking
SELECT carrier, count(*) AS cancelled_flights, sum(distance) AS miles_not_flown
FROM flights
WINDOW RANGE '1 day' SLIDE '2 hours' ON event_time
WHERE cancelled
GROUP BY carrier;

-- name: cancellations_route_day
-- owner: rebooking
SELECT origin, dest, count(*) AS cancelled_flights, max(distance) AS distance
FROM flights
WINDOW RANGE '1 day' SLIDE '6 hours' ON event_time
WHERE cancelled
GROUP BY origin, dest;

-- name: cancellations_without_aircraft_day
-- owner: rebooking
SELECT carrier, count(*) AS cancelled_flights
FROM flights
WINDOW RANGE '1 day' SLIDE '1 hour' ON event_time
WHERE cancelled AND tailnum IS NULL
GROUP BY carrier;

-- name: diverted_12h
-- owner: rebooking
SELECT count(*) AS diverted, max(distance) AS longest
FROM flights
WINDOW RANGE '12 hours' SLIDE '1 hour' ON event_time
WHERE NOT cancelled AND arr_delay IS NULL;

-- ==========================
-- Routes: planning and crews
-- ==========================

-- name: route_flights_3h
-- owner: route-planning
SELECT origin, dest, count(*) AS flights
FROM flights
WINDOW RANGE '3 hours' SLIDE '1 hour' ON event_time
GROUP BY origin, dest;

-- name: route_delay_6h
-- owner: route-planning
SELECT origin, dest, avg(arr_delay) AS mean_delay, max(arr_delay) AS worst_delay
FROM flights
WINDOW RANGE '6 hours' SLIDE '1 hour' ON event_time
GROUP BY origin, dest;

-- name: route_delay_day
-- owner: route-planning
SELECT origin, dest, avg(arr_delay) AS mean_delay, stddev(arr_delay) AS spread, count(arr_delay) AS arrived
FROM flights
WINDOW RANGE '1 day' SLIDE '3 hours' ON event_time
GROUP BY origin, dest;

-- name: route_air_time_day
-- owner: route-planning
SELECT origin, dest, min(air_time) AS fastest, avg(air_time) AS mean_air_time, max(air_time) AS slowest
FROM flights
WINDOW RANGE '1 day' SLIDE '6 hours' ON event_time
WHERE NOT cancelled
GROUP BY origin, dest;

-- name: route_air_time_week
-- owner: route-planning
SELECT origin, dest, avg(air_time) AS mean_air_time, stddev(air_time) AS spread
FROM flights
WINDOW RANGE '7 days' SLIDE '1 day' ON event_time
WHERE NOT cancelled
GROUP BY origin, dest;

-- name: route_severe_day
-- owner: route-planning
SELECT origin, dest, count(*) AS severe, avg(arr_delay) AS mean_delay
FROM flights
WINDOW RANGE '1 day' SLIDE '4 hours' ON event_time
WHERE arr_delay > 60
GROUP BY origin, dest;

-- name: florida_delay_5h
-- owner: route-planning
SELECT dest, avg(dep_delay) AS mean_delay, count(*) AS flights
FROM flights
WINDOW RANGE '5 hours' SLIDE '90 minutes' ON event_time
WHERE dest IN ('MIA', 'FLL', 'MCO', 'TPA', 'PBI', 'JAX', 'RSW')
GROUP BY dest;

-- name: west_coast_delay_8h
-- owner: route-planning
SELECT dest, avg(arr_delay) AS mean_delay, count(*) AS flights
FROM flights
WINDOW RANGE '8 hours' SLIDE '1 hour' ON event_time
WHERE dest IN ('LAX', 'SFO', 'SEA', 'SAN', 'PDX')
GROUP BY dest;

-- name: shuttle_boston_2h
-- owner: route-planning
SELECT origin, count(*) AS flights, avg(dep_delay) AS mean_delay
FROM flights
WINDOW RANGE '2 hours' SLIDE '20 minutes' ON event_time
WHERE dest = 'BOS'
GROUP BY origin;

-- ===============================
-- Long haul and short haul: fleet
-- ===============================

-- name: long_haul_6h
-- owner: fleet
SELECT origin, count(*) AS flights, avg(arr_delay) AS mean_delay
FROM flights
WINDOW RANGE '6 hours' SLIDE '1 hour' ON event_time
WHERE distance >= 1500
GROUP BY origin;

-- name: long_haul_speed_day
-- owner: fleet
SELECT carrier, sum(distance) AS miles, sum(air_time) AS minutes_flown
FROM flights
WINDOW RANGE '1 day' SLIDE '3 hours' ON event_time
WHERE distance >= 1500 AND air_time IS NOT NULL
GROUP BY carrier;

-- name: short_haul_3h
-- owner: fleet
SELECT origin, count(*) AS flights, avg(dep_delay) AS mean_delay
FROM flights
WINDOW RANGE '3 hours' SLIDE '30 minutes' ON event_time
WHERE distance < 500
GROUP BY origin;

-- name: mid_haul_250m
-- owner: fleet
SELECT origin, count(*) AS flights, avg(dep_delay) AS mean_delay
FROM flights
WINDOW RANGE '250 minutes' SLIDE '1 hour' ON event_time
WHERE distance BETWEEN 500 AND 1499
GROUP BY origin;

-- name: fleet_use_day
-- owner: fleet
SELECT carrier, count(tailnum) AS flights, sum(air_time) AS minutes_flown, max(distance) AS longest
FROM flights
WINDOW RANGE '1 day' SLIDE '2 hours' ON event_time
WHERE NOT cancelled
GROUP BY carrier;

-- name: fleet_use_36h
-- owner: fleet
SELECT carrier, sum(air_time) AS minutes_flown, variance(air_time) AS air_time_variance
FROM flights
WINDOW RANGE '36 hours' SLIDE '8 hours' ON event_time
WHERE NOT cancelled
GROUP BY carrier;
