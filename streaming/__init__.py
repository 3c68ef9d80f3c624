"""Everything that runs: from Kafka's offsets topic to tables, queries and alerts."""
