package osdeploy

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/refit-dev/refit/internal/fsutil"
)

// record is the file with what refit gave this machine, whatever it boots.
type record string

// given is its content.
type given struct {
	// Given are kernel arguments: only these are ever taken away.
	Given []string `json:"given,omitempty"`
	// Asked is the digest that was asked for, and Booted that by which the host
	// knows the same content.
	Asked  string `json:"asked,omitempty"`
	Booted string `json:"booted,omitempty"`
	// Before is the digest of what was booted before that, empty for no image.
	Before string `json:"before,omitempty"`
	// Bad is an image that this node booted and went back from by itself, the last one.
	Bad *bad `json:"bad,omitempty"`
	// Prepared lies ready for a run that has not begun; nil if nothing does.
	Prepared *prepared `json:"prepared,omitempty"`
}

// bad is an image with which this node was not well.
type bad struct {
	Digest string `json:"digest"`
	Why    string `json:"why"`
}

// sameAs are other digests of an image that was asked for.
func (g given) sameAs(digest string) []string {
	if digest != "" && digest == g.Asked && g.Booted != "" {
		return []string{g.Booted}
	}
	return nil
}

// asked is the digest by which people know what the host has booted.
func (g given) asked(booted string) string {
	if booted != "" && booted == g.Booted {
		return g.Asked
	}
	return booted
}

func (r record) read() (g given, err error) {
	if _, err := fsutil.ReadJSON(string(r), &g); err != nil {
		return g, fmt.Errorf("record of this machine's OS: %w", err)
	}
	return g, nil
}

// change writes the record, if that changes anything.
func (r record) change(do func(*given)) error {
	have, err := r.read()
	if err != nil {
		return err
	}
	g := have
	g.Given = slices.Clone(have.Given)
	do(&g)
	if reflect.DeepEqual(g, have) {
		return nil
	}
	return fsutil.WriteJSON(string(r), g)
}

// add notes arguments before they are given. What the machine has of its own is none
// that refit gave.
func (r record) add(args, running []string) error {
	return r.change(func(g *given) {
		for _, a := range args {
			if !slices.Contains(g.Given, a) && !slices.Contains(running, a) {
				g.Given = append(g.Given, a)
			}
		}
	})
}

// settle forgets the arguments that were taken away, and learns by which digest the
// host knows the image.
func (r record) settle(v *view) error {
	b, err := kept(v.task)
	if err != nil {
		return err
	}
	return r.change(func(g *given) {
		if b != nil {
			g.Before = b.Digest
		}
		g.Given = slices.DeleteFunc(g.Given, func(a string) bool { return !slices.Contains(v.target.Kargs, a) })
		g.Asked, g.Booted = v.target.Digest, v.status.Booted.Digest
		g.Prepared = nil // it is booted
		if g.Bad != nil && g.Bad.Digest == v.target.Digest {
			g.Bad = nil
		}
	})
}
