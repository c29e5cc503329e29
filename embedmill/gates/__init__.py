"""The gates that a version passes before readers are sent to it."""
