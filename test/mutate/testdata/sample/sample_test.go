package sample

import "testing"

func TestAll(t *testing.T) {
	if Full(2) != "low" || Full(3) != "high" {
		t.Error("Full")
	}
	if !Half(true, true) || Half(true, false) {
		t.Error("Half")
	}
	if Same(9) != 2 || Same(1) != 1 {
		t.Error("Same")
	}
}
