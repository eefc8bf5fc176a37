// Package systemd starts, stops and looks at units through systemd's private
// socket (no message bus is needed), and runs commands as units of their own,
// so that they outlive whoever started them.
//
// Inputs: unit names, argument lists. Outputs: states, errors with the unit's
// name. Callers: the updaters, refit-agent install.
package systemd
