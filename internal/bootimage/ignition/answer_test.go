package ignition_test

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/bootimage/ignition"
)

const spec = "application/vnd.coreos.ignition+json;version="

// The headers are a signal of age, and every no is a sentence.
func TestDecideAnswer(t *testing.T) {
	t.Parallel()
	pool := ignition.Pool{Name: "worker", Spec: 3, MinimumIgnition: "2.14.0", Fix: "Use image 9.6."}
	for name, tc := range map[string]struct {
		accept, agent string
		pool          ignition.Pool
		action        string
		says          string
		spec          int
	}{
		"a new image":                      {spec + "3.4.0, */*;q=0.1", "Ignition/2.20.0", pool, ignition.AnswerConfig, "", 0},
		"the least that is wanted":         {spec + "3.3.0, */*;q=0.1", "Ignition/2.14.0", pool, ignition.AnswerConfig, "", 0},
		"an older Ignition":                {spec + "3.0.0, */*;q=0.1", "Ignition/2.2.1", pool, ignition.AnswerMessage, "Ignition 2.2.1, the least is 2.14.0. Use image 9.6.", 3},
		"one that reads version 2 only":    {spec + "2.4.0, */*;q=0.1", "Ignition/0.35.0", pool, ignition.AnswerMessage, "reads configurations of version 2, and the pool's is of version 3", 2},
		"one that says no version":         {"", "Ignition/0.28.0", pool, ignition.AnswerMessage, "version 2", 2},
		"one whose version is no number":   {spec + "3.4.0", "Ignition/dirty", pool, ignition.AnswerMessage, "does not say of which version", 3},
		"no limit":                         {spec + "3.0.0", "", ignition.Pool{Name: "worker", Spec: 3}, ignition.AnswerConfig, "", 0},
		"a limit that cannot be read":      {spec + "3.4.0", "Ignition/2.20.0", ignition.Pool{Name: "worker", Spec: 3, MinimumIgnition: "new"}, ignition.AnswerMessage, "cannot be read", 3},
		"a recorded image that is too old": {spec + "3.4.0", "Ignition/2.20.0", ignition.Pool{Name: "worker", Spec: 3, TooOld: "MachineSource w: too old", Fix: "Use 9.6."}, ignition.AnswerMessage, "worker: MachineSource w: too old. Use 9.6.", 3},
		"the same with cloud-init":         {"", "Cloud-Init/24.1", ignition.Pool{Name: "worker", CloudInit: true, TooOld: "MachineSource w: too old"}, ignition.AnswerRefuse, "MachineSource w: too old", 0},
		"cloud-init":                       {"", "Cloud-Init/24.1", ignition.Pool{Name: "worker", CloudInit: true}, ignition.AnswerCloudInit, "", 0},
		"several versions":                 {spec + "2.4.0, " + spec + "3.4.0", "Ignition/2.20.0", pool, ignition.AnswerConfig, "", 0},
		"a version of the far future":      {spec + "9.0.0", "Ignition/9.0.0", pool, ignition.AnswerMessage, "version 9", 3},
		"a browser":                        {"text/html", "Mozilla/5.0", pool, ignition.AnswerRefuse, "asked by Ignition", 0},
		"nobody":                           {"", "", pool, ignition.AnswerRefuse, "asked by Ignition", 0},
		"a header without end":             {spec + "3.4.0" + strings.Repeat(",", 2000), "Ignition/2.20.0", pool, ignition.AnswerRefuse, "asked by Ignition", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := ignition.DecideAnswer(ignition.ReadClient(tc.accept, tc.agent), tc.pool)
			if d.Action != tc.action || d.Spec != tc.spec || !strings.Contains(d.Text, tc.says) {
				t.Errorf("%+v", d)
			}
		})
	}
}

func FuzzReadClient(f *testing.F) {
	f.Add(spec+"3.4.0, */*;q=0.1", "Ignition/2.20.0")
	f.Fuzz(func(t *testing.T, accept, agent string) {
		d := ignition.DecideAnswer(ignition.ReadClient(accept, agent), ignition.Pool{Name: "p", Spec: 3, MinimumIgnition: "2.14.0"})
		if d.Action == ignition.AnswerMessage && d.Spec != 2 && d.Spec != 3 || d.Action != ignition.AnswerConfig && d.Text == "" {
			t.Errorf("%+v", d)
		}
	})
}
