package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// fake is a cloud that answers what a test sets.
type fake struct {
	answers map[string]Answer
	err     error
	uploads int
	failing error
}

func (f *fake) Resolve(_ context.Context, w Wanted) (Answer, error) { return f.answers[w.Name], f.err }

func (f *fake) Upload(_ context.Context, w Wanted, p Payload) error {
	f.uploads++
	if f.failing == nil {
		f.answers[w.Name] = Answer{Exists: true, Names: map[string]string{"template": w.Name}}
	}
	return f.failing
}

const stream = `{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[
 {"architecture":"amd64","platform":"vsphere","version":"9.6.1","attributes":{"location":"https://example.test/a.ova","sha256":"aa"}},
 {"architecture":"amd64","platform":"aws","region":"eu-central-1","version":"9.6.1","attributes":{"image":"ami-1"}},
 {"architecture":"amd64","platform":"aws","region":"us-east-1","version":"9.6.1","attributes":{"image":"ami-2"}},
 {"architecture":"amd64","platform":"gcp","version":"9.6.1","attributes":{"name":"x"}}]}`

func parse(t *testing.T, text string) *bootstream.Stream {
	t.Helper()
	s, err := bootstream.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(s *bootstream.Stream, platform, region string) string {
	i, err := s.Find(bootstream.Key{Architecture: "amd64", Platform: platform, Region: region})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v %s", i.Attributes, i.Notice)
}

// The list says of every image what its cloud reported, and nothing of clouds that are not
// configured.
func TestList(t *testing.T) {
	v, a := &fake{answers: map[string]Answer{}}, &fake{answers: map[string]Answer{}}
	asker := &Asker{Now: func() time.Time { return now }, Sites: []Site{
		{Name: "hall-1", Platform: "vsphere", Region: "hall-1", Image: "/dc/vm/rhcos-{version}", Cloud: v},
		{Name: "hall-2", Platform: "vsphere", Region: "hall-2", Image: "/dc2/vm/{architecture}", Cloud: &fake{answers: map[string]Answer{}}},
		{Name: "aws-eu", Platform: "aws", Region: "eu-central-1", Cloud: a}}}
	s := parse(t, stream)
	list := func() *bootstream.Stream {
		l := List(s, asker.Ask(context.Background(), s), now)
		data, err := bootstream.EncodeGeneric(l)
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, string(data)) // as the controller reads it
	}
	check := func(l *bootstream.Stream, platform, region string, want ...string) {
		t.Helper()
		got := find(l, platform, region)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s %s: %s; want %s", platform, region, got, w)
			}
		}
	}
	l := list()
	check(l, "vsphere", "hall-1", "sha256:aa", "it is not uploaded to hall-1")
	if strings.Contains(find(l, "vsphere", "hall-1"), "template") {
		t.Error("a template that does not exist has a name")
	}
	check(l, "aws", "eu-central-1", "no such boot image", "aws-eu does not have it")
	check(l, "aws", "us-east-1", "image:ami-2")
	check(l, "gcp", "", "name:x")

	v.answers["/dc/vm/rhcos-9.6.1"] = Answer{Exists: true, Unverified: true, Names: map[string]string{"template": "/dc/vm/rhcos-9.6.1"}}
	a.answers[""] = Answer{Exists: true, Architecture: "x86_64", Deprecated: now.Add(30 * 24 * time.Hour), Newest: "rhcos-9.6.2"}
	l = list()
	check(l, "vsphere", "hall-1", "template:/dc/vm/rhcos-9.6.1", "contents were not compared")
	check(l, "vsphere", "hall-2", "it is not uploaded to hall-2")
	check(l, "aws", "eu-central-1", "image:ami-1", "it is deprecated from 2026-12-27", "a newer image is there: rhcos-9.6.2")

	// A cloud that does not answer keeps its last answer, with the time.
	a.err = errors.New("dial tcp: refused")
	l = list()
	check(l, "aws", "eu-central-1", "image:ami-1", "as of 2026-11-27T12:00:00Z: dial tcp: refused")
	a.err, a.answers[""] = nil, Answer{Exists: true, Architecture: "arm64"}
	check(list(), "aws", "eu-central-1", "its architecture is arm64")
	a.answers[""] = Answer{Problem: "image ami-1 is disabled", Names: map[string]string{"image": "ami-1"}}
	check(list(), "aws", "eu-central-1", "image ami-1 is disabled")
	a.answers[""] = Answer{Newest: "rhcos-9.5.9"}
	check(list(), "aws", "eu-central-1", "the newest image there is rhcos-9.5.9")

	// The answer for an image is not the answer for the next release's.
	a.answers[""] = Answer{Exists: true}
	check(list(), "aws", "eu-central-1", "image:ami-1")
	a.err, s = errors.New("refused"), parse(t, strings.ReplaceAll(stream, "ami-1", "ami-9"))
	check(list(), "aws", "eu-central-1", "no such boot image", "aws-eu was not reached: refused")
}

// A marketplace lags: the version that is there counts, and never the release of the list.
func TestListOfAnotherVersion(t *testing.T) {
	a := &fake{answers: map[string]Answer{"": {Exists: true, Version: "418.94.202501221327-0", Names: map[string]string{"image": "ami-m"}}}}
	asker := &Asker{Now: func() time.Time { return now }, Sites: []Site{{Name: "aws-eu", Platform: "aws", Region: "eu-central-1", Cloud: a}}}
	key := bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "eu-central-1"}
	s := parse(t, stream)
	l := List(s, asker.Ask(context.Background(), s), now)
	i, err := l.Find(key)
	if err != nil || i.Version != "418.94.202501221327-0" || l.ReleaseOf(i) != "4.18.0" || i.Attributes["image"] != "ami-m" || !strings.Contains(i.Notice, "has version 418.94.202501221327-0 instead of 9.6.1") {
		t.Errorf("%+v %s %v", i, l.ReleaseOf(i), err)
	}
	a.answers[""] = Answer{Exists: true, Version: "9.4.20250101-0", Names: map[string]string{"image": "ami-m"}}
	l = List(s, asker.Ask(context.Background(), s), now)
	if _, err := l.Find(key); err == nil || !strings.Contains(err.Error(), "has version 9.4.20250101-0 instead, of an unknown release") {
		t.Error("it would count as an image of the list's release:", err)
	}
	a.answers[""] = Answer{Exists: true, Version: "9.6.1", Names: map[string]string{"image": "ami-m"}}
	l = List(s, asker.Ask(context.Background(), s), now)
	if i, err := l.Find(key); err != nil || i.Notice != "" || l.ReleaseOf(i) != "1.36.3" {
		t.Errorf("%+v %v", i, err)
	}
}

// Uploads are off unless a site has them on, and a failed one is reported and tried again.
func TestUploads(t *testing.T) {
	files := newFiles(t, "a disk")
	s := parse(t, strings.Replace(stream, `"sha256":"aa"`, `"sha256":"`+files.sum+`"`, 1))
	c := &fake{answers: map[string]Answer{}}
	asker := &Asker{Now: func() time.Time { return now }, Files: files.Files, Log: func(string, ...any) {},
		Sites: []Site{{Name: "hall-1", Platform: "vsphere", Region: "hall-1", Image: "rhcos-{version}", Cloud: c}}}
	run := func() []Report { return asker.Upload(context.Background(), asker.Ask(context.Background(), s)) }
	if run(); c.uploads != 0 {
		t.Fatal("uploads are off")
	}
	asker.Sites[0].Upload, c.failing = true, errors.New("no space on datastore")
	if l := List(s, run(), now); c.uploads != 1 || !strings.Contains(find(l, "vsphere", "hall-1"), "upload: no space on datastore") {
		t.Error(c.uploads, find(l, "vsphere", "hall-1"))
	}
	c.err = errors.New("refused")
	if run(); c.uploads != 1 {
		t.Error("an upload to a cloud that does not answer")
	}
	c.err, c.failing = nil, nil
	if l := List(s, run(), now); c.uploads != 2 || !strings.Contains(find(l, "vsphere", "hall-1"), "template:rhcos-9.6.1") {
		t.Error(c.uploads, find(l, "vsphere", "hall-1"))
	}
	if run(); c.uploads != 2 {
		t.Error("an image that exists is uploaded again")
	}
	c.answers["rhcos-9.6.1"] = Answer{Problem: "it is of another file"}
	if run(); c.uploads != 2 {
		t.Error("an upload over an image of another file")
	}
}
