-- name: requests_by_host
-- owner: web
SELECT host, count(*) AS requests, avg(milliseconds) AS mean_ms
FROM requests WINDOW RANGE '1 hour' SLIDE '15 minutes' ON time
GROUP BY host;

-- name: slow_paths
-- owner: web
-- asset
SELECT path, median(milliseconds) AS median_ms, max(milliseconds) AS worst_ms
FROM requests WINDOW RANGE '2 hours' SLIDE '1 hour' ON time
GROUP BY path;

-- name: failing_hosts
-- owner: on-call
SELECT host, count(*) AS failures
FROM requests WINDOW RANGE '1 hour' SLIDE '30 minutes' ON time
WHERE status >= 500 GROUP BY host HAVING count(*) > 20;
