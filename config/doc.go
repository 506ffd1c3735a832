// Package config reads fleet.yml, the environment and the flags, and says
// everything that is wrong with them at once, each with its place and in the
// user's own key names.
//
// A flag wins over the environment (RAIDERFLEET_…), the environment over the
// file, the file over the default. One table of keys (keys.go) drives the file's
// reader, the names of the variables and flags, Describe, and the test that holds
// docs/config.md to it.
//
// Nothing in a value is expanded: no ${VAR}, no ~, no shell. What a raider needs
// from the environment is named in its pass_env.
package config
