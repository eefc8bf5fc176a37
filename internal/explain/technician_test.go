package explain

import "testing"

// For each phase of a machine: what a technician reads, and in which colour.
func TestMachineSentences(t *testing.T) {
	t.Parallel()
	run := func(state string) Machine {
		return Machine{Known: true, Phase: "Ready", Wanted: "new", Permitted: MachineRun{UID: "u", Bundle: "new"}, Run: MachineRun{UID: "u", State: state}}
	}
	older := run("Succeeded")
	older.Permitted.Bundle = "old"
	other := run("Succeeded")
	other.Run.UID = "v"
	next := run("Succeeded")
	next.Media = []MachineMedium{{State: "Found", Digest: "next"}}
	known := run("Succeeded")
	known.Media = []MachineMedium{{State: "Found", Digest: "old", Approved: true}}
	for name, c := range map[string]struct {
		m            Machine
		text, colour string
	}{
		"stopped":                          {Machine{Stopped: true, Known: true, Phase: "Ready"}, sentences["Stopped"].one, Red},
		"no status yet":                    {Machine{}, sentences["Unknown"].one, Blue},
		"nothing to do":                    {Machine{Known: true, Phase: "Idle"}, sentencePlug, Green},
		"a bundle is approved":             {Machine{Known: true, Phase: "Idle", Wanted: "new"}, sentencePlan, Green},
		"a medium waits for approval":      {Machine{Known: true, Phase: "Idle", Media: []MachineMedium{{State: "Found"}}}, sentenceApprove, Yellow},
		"a medium is unreadable":           {Machine{Known: true, Phase: "Idle", Media: []MachineMedium{{State: "Unreadable"}}}, sentenceUnusable, Yellow},
		"copying":                          {Machine{Known: true, Phase: "Copying"}, sentences["Preparing"].one, Blue},
		"a phase of a newer agent":         {Machine{Known: true, Phase: "Dreaming"}, sentences["Preparing"].one, Blue},
		"waits by itself":                  {Machine{Known: true, Phase: "Waiting", Reason: "Copying"}, sentences["Preparing"].one, Blue},
		"waits for a person":               {Machine{Known: true, Phase: "Waiting", Reason: "InsufficientSpace", Stalled: true}, sentences["Blocked"].one, Yellow},
		"misses the medium":                {Machine{Known: true, Phase: "Waiting", Reason: "NoSource"}, sentences["Missing"].one, Yellow},
		"paused":                           {Machine{Known: true, Phase: "Waiting", Reason: "Paused"}, sentencePaused, Yellow},
		"prepared":                         {Machine{Known: true, Phase: "Ready", Wanted: "new"}, sentences["Ready"].one, Green},
		"permitted, not started":           {other, sentences["Starting"].one, Blue},
		"updating":                         {Machine{Known: true, Phase: "Updating"}, sentences["Updating"].one, Blue},
		"failed":                           {Machine{Known: true, Phase: "Failed"}, sentences["Halted"].one, Red},
		"undone":                           {run("Undone"), sentences["Undone"].one, Red},
		"done":                             {run("Succeeded"), sentences["Done"].one, Green},
		"done, and the next release":       {older, sentences["Ready"].one, Green},
		"done, and the next medium":        {next, sentenceApprove, Yellow},
		"done, and a medium that is known": {known, sentences["Done"].one, Green},
		"a run in an unknown state":        {run("Dreaming"), sentences["Ready"].one, Green},
	} {
		got := MakeMachine(c.m)
		if got.Sentence != c.text || got.Colour != c.colour || c.text == "" {
			t.Errorf("%s: %q %s, want %q %s", name, got.Sentence, got.Colour, c.text, c.colour)
		}
	}
}

// Each sentence has a colour with a sign, and is about one machine or about all.
func TestEveryPhaseHasASentence(t *testing.T) {
	t.Parallel()
	for phase, s := range sentences {
		if s.one == "" || s.one == s.all {
			t.Errorf("%s: %+v", phase, s)
		}
	}
	for _, phase := range []string{"Planning", "Preparing", "Blocked", "Ready", "Starting", "Updating", "Halted", "Done"} {
		if got := MakeTechnician(&View{Phase: phase, Colour: Blue}, nil); got.Sentence == "" || Signs[got.Colour] == "" {
			t.Errorf("%s: %+v", phase, got)
		}
	}
}

func TestMachineProgress(t *testing.T) {
	t.Parallel()
	m := Machine{Known: true, Phase: "Copying", BytesDone: 999, BytesTotal: 1000}
	if p := MakeMachine(m).Progress; p == nil || p.Percent != 99 || p.Label != "Copied" {
		t.Errorf("%+v", p)
	}
	m.BytesTotal = 0
	if p := MakeMachine(m).Progress; p != nil {
		t.Errorf("nothing to copy: %+v", p)
	}
	m = Machine{Known: true, Phase: "Updating", Run: MachineRun{StepsDone: 2, StepsTotal: 5}}
	if p := MakeMachine(m).Progress; p == nil || p.Percent != 40 || p.Detail != "2 of 5" {
		t.Errorf("%+v", p)
	}
}

// The medium may go from a machine only when no machine can need it.
func TestMachineMediumAdvice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		media []MachineMedium
		want  string
	}{
		"none":                       {nil, ""},
		"found":                      {[]MachineMedium{{State: "Found", Digest: "d"}}, MediumStay},
		"copying":                    {[]MachineMedium{{State: "Copying", Digest: "d"}}, MediumStay},
		"copied here":                {[]MachineMedium{{State: "Copied", Digest: "d"}}, MediumStay},
		"copied without a digest":    {[]MachineMedium{{State: "Copied"}}, MediumStay},
		"all of it is here":          {[]MachineMedium{{State: "Copied", Digest: "d", Whole: true}}, MediumPull},
		"its run is permitted":       {[]MachineMedium{{State: "Copied", Digest: "run"}}, MediumPull},
		"its run, and not copied":    {[]MachineMedium{{State: "Copying", Digest: "run"}}, MediumStay},
		"refused":                    {[]MachineMedium{{State: "Refused"}}, MediumPull},
		"one may go and one may not": {[]MachineMedium{{State: "Unreadable"}, {State: "Copied", Digest: "d"}}, MediumStay},
		"a state of a newer agent":   {[]MachineMedium{{State: "Dreaming", Digest: "run"}}, MediumStay},
		"both may go":                {[]MachineMedium{{State: "Refused"}, {State: "Copied", Digest: "run"}}, MediumPull},
	} {
		m := Machine{Known: true, Phase: "Ready", Media: c.media, Permitted: MachineRun{Bundle: "run"}}
		if got := MakeMachine(m).Medium; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
