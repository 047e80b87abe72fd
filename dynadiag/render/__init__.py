"""Shows a `Report`: terminal, report.json, report.md and pictures. Deterministic; everything from outside goes through `sanitise`."""
