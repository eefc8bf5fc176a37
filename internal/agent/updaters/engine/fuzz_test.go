package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Any bytes on the disk: a journal is readable or damaged, the same at every start. A
// journal that is not damaged accepts another line, and then has its old content and
// that line.
func FuzzJournal(f *testing.F) {
	named := v1alpha1.NodeRun{UID: "11111111-1111-1111-1111-111111111111", Attempt: 1, Name: "u"}
	at := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	var whole []byte
	for i, e := range []entry{{Event: eventRun, Run: &named, At: at}, {Event: eventStart, Step: "kubelet", At: at}, {Event: eventEnd, Step: "kubelet", At: at}, {Event: eventFinish, At: at}} {
		e.Line = i + 1
		line, err := e.encode()
		if err != nil {
			f.Fatal(err)
		}
		whole = append(whole, line...)
		f.Add(bytes.Clone(whole))
		f.Add(whole[:len(whole)-len(line)/2])
	}
	f.Add(make([]byte, 64))
	f.Add(bytes.Replace(whole, []byte("kubelet"), []byte("kubeadm"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "j.jsonl")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, again := readJournal(path, 1, named), readJournal(path, 1, named)
		if j.lines != again.lines || j.size != again.size || len(j.stepsDone) != len(again.stepsDone) || (j.damage == nil) != (again.damage == nil) || (j.finish == nil) != (again.finish == nil) {
			t.Fatalf("read twice: %+v, %+v", j, again)
		}
		if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, data) {
			t.Fatalf("reading changed it: %v", err)
		}
		if j.damage != nil {
			return // a whole last line may still say how the run ended
		}
		if j.run.UID != named.UID || j.size > int64(len(data)) {
			t.Fatalf("%+v", j)
		}
		if err := j.appendEntry(entry{Event: eventEnd, Step: "added", At: at}); err != nil {
			t.Fatal(err)
		}
		after := readJournal(path, 1, named)
		if after.damage != nil || !after.stepsDone["added"] || after.lines != j.lines || len(after.started) != len(again.started) {
			t.Fatalf("after a line was added: %+v (%+v), before: %+v", after, after.damage, again)
		}
	})
}
