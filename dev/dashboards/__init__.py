"""The Grafana dashboards, as code: `python -m dev.dashboards write|check`; the files are in deploy/dashboards."""
