"""Tests of single parts, without a database, a broker or a store."""
