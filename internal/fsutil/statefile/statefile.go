package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Reason words of problems; they are in the API.
const (
	// ReasonDamaged: a file of the agent's state was damaged and counts as missing.
	ReasonDamaged = "StateFileDamaged"
	// ReasonNotWritable: a file of the agent's state cannot be written.
	ReasonNotWritable = "StateNotWritable"
)

// Problem is something that is wrong with a node's agent and that it lives with.
type Problem struct {
	// Reason word.
	Reason string `json:"reason"`
	// Object is the file or the part that it is about.
	Object  string `json:"object"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
	// Repaired: nothing is left to do; it is reported for a day.
	Repaired bool `json:"repaired,omitempty"`
	// Reported is true if an event of the node has reported it.
	Reported bool `json:"reported,omitempty"`
}

// Note takes a problem.
type Note func(Problem)

// Ignore is for programs that keep no state on a node.
func Ignore(Problem) {}

// Kept is how many damaged versions of a file stay next to it.
const Kept = 3

// Read hands the content of a file to decode. It returns false if there is no such file,
// and also if it cannot be read or decoded: then it is set aside and noted. Instead says
// how the agent goes on, for the note.
func Read(path, instead string, decode func([]byte) error, note Note) bool {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = decode(b)
	}
	if err == nil {
		return true
	}
	note(SetAside(path, instead, fmt.Errorf("%w (%s)", err, describe(b))))
	return false
}

// describe says what kind of damage it looks like.
func describe(b []byte) string {
	switch {
	case len(b) == 0:
		return "no bytes"
	case strings.Trim(string(b), "\x00") == "":
		return strconv.Itoa(len(b)) + " zero bytes"
	case strings.ContainsRune(string(b), 0):
		return strconv.Itoa(len(b)) + " bytes with zero bytes among them"
	}
	return strconv.Itoa(len(b)) + " bytes"
}

// SetAside renames a damaged file or directory and describes that as a Problem.
func SetAside(path, instead string, damage error) Problem {
	p := Problem{Reason: ReasonDamaged, Object: path, Repaired: true, Fix: "nothing: " + instead + ". If it happens again, check the disk of this node"}
	aside, err := rename(path)
	if err != nil {
		p.Message = fmt.Sprintf("%s is damaged: %v; it could not be renamed (%v) and is ignored where it is", path, damage, err)
		return p
	}
	p.Message = fmt.Sprintf("%s is damaged: %v; it is kept as %s", path, damage, aside)
	return p
}

// Aside is the name of the nth damaged version of a file, the newest first.
func Aside(path string, n int) string { return path + ".damaged-" + strconv.Itoa(n) }

// rename moves a damaged file aside and the older ones one further; the oldest goes.
func rename(path string) (aside string, err error) {
	if err := os.RemoveAll(Aside(path, Kept)); err != nil {
		return "", err
	}
	for n := Kept - 1; n > 0; n-- {
		if err := os.Rename(Aside(path, n), Aside(path, n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	aside = Aside(path, 1)
	return aside, os.Rename(path, aside)
}

// Dir makes sure that path is a directory that can be listed. What is there instead is
// set aside. On a read-only disk a directory that is missing stays missing.
func Dir(path, instead string, note Note) {
	_, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		note(SetAside(path, instead, err))
	}
	if err == nil {
		return
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		note(NotWritable(path, err))
	}
}

// WrittenAgain describes a file that could not be written for a time.
func WrittenAgain(path string) Problem {
	return Problem{Reason: ReasonNotWritable, Object: path, Repaired: true, Message: path + " could not be written for a time; it is written now", Fix: "nothing"}
}

// NotWritable describes a file that cannot be written.
func NotWritable(path string, err error) Problem {
	return Problem{Reason: ReasonNotWritable, Object: path, Message: fmt.Sprintf("%s cannot be written: %v; the agent goes on with what it has in memory", path, err),
		Fix: "make room on the disk of the state directory, or mount it writable; the agent writes the file when it can"}
}
