-- name: hall_temperature
SELECT sensor, avg(celsius) AS mean, min(celsius) AS lowest, max(celsius) AS highest
FROM readings WINDOW RANGE '1 hour' SLIDE '20 minutes' ON measured_at
GROUP BY sensor;

-- name: warmest
SELECT max_by(sensor, celsius) AS sensor, max(celsius) AS celsius
FROM readings WINDOW RANGE '3 hours' SLIDE '1 hour' ON measured_at;

-- name: open_doors
SELECT sensor, count(*) AS minutes_open
FROM readings WINDOW RANGE '2 hours' SLIDE '1 hour' ON measured_at
WHERE door_open GROUP BY sensor HAVING count(*) > 14;
