package cloud

import (
	"context"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// Wanted is an image that a stream wants in one cloud.
type Wanted struct {
	bootstream.Image
	// Name that the image has in this cloud, by the configuration of the site.
	Name string
}

// Sum is the SHA-256 of the image's file as the stream has it, empty for an image of a cloud.
func (w Wanted) Sum() string {
	f, _ := w.DiskFile()
	return f.SHA256
}

// Answer is what a cloud reports about an image.
type Answer struct {
	// Exists: the cloud has it, complete.
	Exists bool
	// Problem is why machines cannot start from what has its name, empty if they can.
	Problem string
	// Names are the attributes by which objects of machine kinds name it: template, id, name.
	Names map[string]string
	// Version of the operating system, if it may differ from the stream's; else empty.
	Version string
	// Architecture as the cloud spells it, empty if it does not report one.
	Architecture string
	// Created and Deprecated are zero if the cloud does not report them.
	Created, Deprecated time.Time
	// Newest is the newest image of the same family in the cloud; empty if there is none
	// newer, or the cloud has no families.
	Newest string
	// Unverified: a person uploaded it, so its contents are not known.
	Unverified bool
}

// Resolver answers for one account, region or site of a cloud.
type Resolver interface {
	// Resolve reports an image that does not exist as an Answer. An error means that the
	// cloud did not answer.
	Resolve(ctx context.Context, w Wanted) (Answer, error)
}

// Chooser is a cloud whose machines cannot name every image that a stream has for it.
type Chooser interface {
	// Concerns reports whether they can name an image.
	Concerns(i bootstream.Image) bool
}

// Uploader is a cloud that has images of its users.
type Uploader interface {
	Resolver
	// Upload makes the image from a verified file. It continues what an earlier call left,
	// also one whose process died. When it returns nil, Resolve reports that it exists.
	Upload(ctx context.Context, w Wanted, p Payload) error
}

// Site is one configured cloud.
type Site struct {
	// Name for people; Platform and Region as in policies and streams.
	Name, Platform, Region string
	// Image is the name of images in this cloud: {version} and {architecture} are replaced.
	Image string
	// Upload files that are missing.
	Upload bool
	Cloud  Resolver
}

// wants returns the image in this site, false if the site is not for it.
func (s Site) wants(i bootstream.Image) (Wanted, bool) {
	if i.Key.Platform != s.Platform || i.Key.Region != "" && i.Key.Region != s.Region {
		return Wanted{}, false
	}
	if c, ok := s.Cloud.(Chooser); ok && !c.Concerns(i) {
		return Wanted{}, false
	}
	name := strings.NewReplacer("{version}", i.Version, "{architecture}", i.Key.Architecture).Replace(s.Image)
	return Wanted{Image: i, Name: name}, true
}
