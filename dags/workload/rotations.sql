-- Rotations: which cities one aircraft (tailnum) is sent to from New York, one after the other within a day.
-- An event sequence is every choice of such departures in strictly ascending time; a city may come up again (shuttles).
-- Windows of 24 hours (some of two days) slide by the hour; all over the same stream as flights.sql.

-- ==================================================================
-- The shuttles: Boston and Washington, several times a day
-- ==================================================================

-- name: shuttle_boston_2
-- owner: rotations
SELECT count(*) AS pairs
FROM flights
PATTERN SEQ(BOS, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: shuttle_boston_3
-- owner: rotations
SELECT count(*) AS triples, avg(BOS.dep_delay) AS mean_delay
FROM flights
PATTERN SEQ(BOS, BOS, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: shuttle_boston_4
-- owner: rotations
SELECT count(*) AS quadruples
FROM flights
PATTERN SEQ(BOS, BOS, BOS, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: shuttle_washington_2
-- owner: rotations
SELECT count(*) AS pairs
FROM flights
PATTERN SEQ(DCA, DCA) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: shuttle_washington_3
-- owner: rotations
SELECT count(*) AS triples
FROM flights
PATTERN SEQ(DCA, DCA, DCA) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: shuttle_washington_boston
-- owner: rotations
SELECT count(*) AS times
FROM flights
PATTERN SEQ(DCA, DCA, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: shuttle_both
-- owner: rotations
SELECT count(*) AS times
FROM flights
PATTERN SEQ(DCA, DCA, BOS, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: boston_philadelphia
-- owner: rotations
SELECT count(*) AS times
FROM flights
PATTERN SEQ(BOS, BOS, PHL) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- ==================================================================
-- Regional rotations: pieces in common, windows of their own
-- ==================================================================

-- name: raleigh_washington
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(RDU, RDU, DCA) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: raleigh_washington_2
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(RDU, RDU, DCA, DCA) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: raleigh_detroit
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(RDU, DTW) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: raleigh_detroit_cleveland
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(RDU, DTW, CLE) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: columbus_raleigh_detroit
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(CMH, RDU, DTW) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: columbus_raleigh_detroit_cleveland
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(CMH, RDU, DTW, CLE) ON dest PARTITION BY tailnum
WINDOW RANGE '48 hours' SLIDE '2 hours' ON event_time;

-- name: burlington_raleigh_burlington
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(BTV, RDU, BTV) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: burlington_raleigh_burlington_buffalo
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(BTV, RDU, BTV, BUF) ON dest PARTITION BY tailnum
WINDOW RANGE '48 hours' SLIDE '2 hours' ON event_time;

-- name: upstate
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(SYR, BUF, IAD, BTV) ON dest PARTITION BY tailnum
WINDOW RANGE '48 hours' SLIDE '2 hours' ON event_time;

-- name: buffalo_washington_burlington
-- owner: network
SELECT count(*) AS times
FROM flights
PATTERN SEQ(BUF, IAD, BTV) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- ==================================================================
-- Coasts and the sun: what a day of an aircraft costs and earns in miles and minutes
-- ==================================================================

-- name: coast_to_coast
-- owner: finance
SELECT count(*) AS times, sum(SFO.distance) AS miles, max(LAX.dep_delay) AS worst
FROM flights
PATTERN SEQ(SFO, LAX) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: coast_and_back
-- owner: finance
SELECT count(*) AS times
FROM flights
PATTERN SEQ(LAX, SFO, LAX) ON dest PARTITION BY tailnum
WINDOW RANGE '48 hours' SLIDE '2 hours' ON event_time;

-- name: florida
-- owner: finance
SELECT count(*) AS times, sum(MCO.arr_delay) AS minutes_late
FROM flights
PATTERN SEQ(MCO, MIA) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: florida_three
-- owner: finance
SELECT count(*) AS times
FROM flights
PATTERN SEQ(FLL, SRQ, MCO) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- name: miami_dallas
-- owner: finance
SELECT count(*) AS times, avg(DFW.arr_delay) AS late_in_dallas
FROM flights
PATTERN SEQ(MIA, MIA, DFW) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time;

-- ==================================================================
-- By airline, and among the late ones
-- ==================================================================

-- name: shuttle_boston_by_carrier
-- owner: rotations
SELECT carrier, count(*) AS pairs, count(BOS) AS departures
FROM flights
PATTERN SEQ(BOS, BOS) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time
GROUP BY carrier;

-- name: sent_out_late_twice
-- owner: rotations
SELECT carrier, count(*) AS times, min(ATL.dep_delay) AS least
FROM flights
PATTERN SEQ(ATL, ATL) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time
WHERE dep_delay > 15
GROUP BY carrier;

-- name: busy_chicago
-- owner: network
SELECT carrier, count(*) AS pairs
FROM flights
PATTERN SEQ(ORD, ORD) ON dest PARTITION BY tailnum
WINDOW RANGE '24 hours' SLIDE '1 hour' ON event_time
GROUP BY carrier
HAVING count(*) >= 3;
