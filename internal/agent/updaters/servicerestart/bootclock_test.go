package servicerestart

import (
	"encoding/json"
	"testing"
	"time"
)

func TestStamp(t *testing.T) {
	start := time.Now()
	a, err := StampAt(start)
	if err != nil {
		t.Fatal(err)
	}
	b, err := StampAt(start.Add(90 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var read BootStamp
	if err := json.Unmarshal(text, &read); err != nil || read != a {
		t.Fatalf("%s is read as %+v: %v", text, read, err)
	}
	if d, ok := b.Since(read); !ok || (d-90*time.Second).Abs() > time.Second {
		t.Errorf("90 s later: %s, %v", d, ok)
	}
	read.Boot = "another"
	if _, ok := b.Since(read); ok {
		t.Error("stamps of two boots are compared")
	}
	if _, ok := b.Since(BootStamp{}); ok {
		t.Error("no stamp is compared")
	}
}
