"""Recipes that come with the package: one TOML file per published method."""
