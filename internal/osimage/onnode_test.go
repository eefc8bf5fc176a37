package osimage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

// The desired configuration of a node depends on the inputs of its pool's image.
func TestOnNode(t *testing.T) {
	own := func(f *model.ConfigFile) { f.Own = true }
	text := func(s string) func(*model.ConfigFile) { return func(f *model.ConfigFile) { f.Data = []byte(s) } }
	const unit = "/etc/systemd/system/p.service"
	for name, c := range map[string]struct {
		wanted, held []model.ConfigFile
		files        []string
	}{
		"a unit that the image has is verified, and the copy that hides it goes": {
			[]model.ConfigFile{file(unit, own)}, []model.ConfigFile{file(unit, own)}, []string{"stale " + unit, "image /usr/lib/systemd/system/p.service"}},
		"a unit that the image has otherwise is written to /etc, since its change needs no image": {
			[]model.ConfigFile{file(unit, own, text("new"))}, []model.ConfigFile{file(unit, own)}, []string{"write " + unit}},
		"before there is an image the agent writes units":              {[]model.ConfigFile{file(unit, own)}, nil, []string{"write " + unit}},
		"a file of /usr waits for the image that brings it":            {[]model.ConfigFile{file("/usr/lib/x", text("new"))}, []model.ConfigFile{file("/usr/lib/x")}, nil},
		"a file of /usr that the image has is verified":                {[]model.ConfigFile{file("/usr/lib/x")}, []model.ConfigFile{file("/usr/lib/x")}, []string{"image /usr/lib/x"}},
		"a file of /etc is written wherever it comes from":             {[]model.ConfigFile{file("/etc/motd")}, []model.ConfigFile{file("/etc/motd")}, []string{"write /etc/motd"}},
		"a file of /var is never the image's":                          {[]model.ConfigFile{file("/var/lib/x")}, nil, []string{"write /var/lib/x"}},
		"an absent file is removed, whichever tool wrote it":           {[]model.ConfigFile{file("/etc/motd", func(f *model.ConfigFile) { f.Absent = true })}, nil, []string{"remove /etc/motd"}},
		"files of the image that are not wanted any more are left out": {nil, []model.ConfigFile{file(unit, own), file("/usr/lib/x")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, vs := OnNode(model.NodeConfig{Files: c.wanted, Packages: []string{"vim"}}, model.NodeConfig{Files: c.held})
			if len(vs) > 0 || got.Packages != nil {
				t.Fatal(vs, got.Packages)
			}
			var files []string
			for _, f := range got.Files {
				how := "write"
				switch {
				case f.InImage:
					how = "image"
				case f.Stale:
					how = "stale"
				case f.Absent:
					how = "remove"
				}
				files = append(files, how+" "+f.Path)
			}
			if d := cmp.Diff(c.files, files); d != "" {
				t.Fatal(d)
			}
		})
	}
	if _, vs := OnNode(model.NodeConfig{Files: []model.ConfigFile{file("/usr/lib/x", text("-----BEGIN PRIVATE KEY-----"))}}, model.NodeConfig{}); len(vs) != 1 || !strings.Contains(vs[0].Message, "private key") {
		t.Errorf("a secret below /usr: %+v", vs)
	}
}
