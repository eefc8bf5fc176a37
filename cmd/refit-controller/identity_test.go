package main

import "testing"

// Two that are started by hand on one host must not both lead; a container that
// starts again in its pod keeps its lease.
func TestIdentity(t *testing.T) {
	t.Setenv("POD_NAME", "")
	if a, b := identity(), identity(); a == b {
		t.Errorf("two processes of one host are both %s", a)
	}
	t.Setenv("POD_NAME", "refit-controller-1")
	if a := identity(); a != "refit-controller-1" || a != identity() {
		t.Errorf("a pod's container is %s", a)
	}
}
