package osversion

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/Masterminds/semver/v3"
)

// Scheme is how a version is written.
type Scheme string

// Schemes that are known.
const (
	SemVer      Scheme = "semver"
	RHCOS       Scheme = "rhcos"
	RHCOSLegacy Scheme = "rhcos-legacy"
	RHCOSMarket Scheme = "rhcos-marketplace"
	FCOS        Scheme = "fcos"
	Flatcar     Scheme = "flatcar"
	Amazon      Scheme = "amazon-linux"
	Ubuntu      Scheme = "ubuntu"
	Date        Scheme = "date"
)

// Version that was read.
type Version struct {
	// Text as it was given.
	Text   string
	Scheme Scheme
	// Major and Minor of the operating system, or of the release (SemVer). Zero
	// for a bare build date.
	Major, Minor int
	// Built is the day of the build, zero if the scheme does not say.
	Built time.Time
	// rest are the numbers after Major and Minor, in order.
	rest []int
	// release that a legacy RHEL CoreOS version holds.
	release string
	sem     *semver.Version
}

// longest a version may be.
const longest = 128

var (
	rhcosNew    = regexp.MustCompile(`^(\d{1,2})[.-](\d{1,2})[.-](\d{8}|\d{12})-(\d{1,6})$`)
	rhcosLegacy = regexp.MustCompile(`^(\d{2,3})[.-](\d{2,3})[.-](\d{12})-(\d{1,6})$`)
	rhcosMarket = regexp.MustCompile(`^(4\d{1,2})\.(\d{1,2})\.(\d{8})$`)
	fcos        = regexp.MustCompile(`^(\d{2,3})\.(\d{8})\.(\d{1,4})\.(\d{1,4})$`)
	amazon      = regexp.MustCompile(`^(20\d\d)\.(\d{1,3})\.(\d{8})(?:\.(\d{1,4}))?$`)
	ubuntu      = regexp.MustCompile(`^(\d{2})\.(04|10)(?:[.-](\d{8})(?:\.(\d{1,4}))?)?$`)
	date        = regexp.MustCompile(`^(20\d{6})(?:\.(\d{1,4}))?$`)
	plain       = regexp.MustCompile(`^v?\d{1,5}\.\d{1,5}(\.\d{1,5})?([-+][0-9A-Za-z.+-]*)?$`)
)

// Parse reads a version in any of the schemes.
func Parse(text string) (Version, error) {
	t := strings.TrimSpace(text)
	if t == "" || len(t) > longest {
		return Version{}, unreadable(text)
	}
	for _, read := range []func(string) (Version, bool){readLegacy, readMarket, readRHCOS, readFCOS, readAmazon, readUbuntu, readDate, readSemVer} {
		if v, ok := read(t); ok {
			v.Text = t
			return v, nil
		}
	}
	return Version{}, unreadable(text)
}

func unreadable(version string) error {
	return fmt.Errorf("version %q is of no known scheme (4.19.3, 9.6.20251023-0, 418.94.202501221327-0, 38.20230918.3.0, 3815.2.0, 2023.6.20241010, 24.04.20250115, 20250115)", text.Truncate(version, longest))
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // the patterns let only short digits through
	return n
}

// day of a build; a text that is no day is refused.
func day(s string) (time.Time, bool) {
	d, err := time.Parse("20060102", s[:8])
	return d, err == nil
}

// readLegacy: 48.84.202208021106-0, 418.94.202501221327-0. The first field is
// the release without its dot, the second the RHEL version.
func readLegacy(t string) (Version, bool) {
	m := rhcosLegacy.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	built, ok := day(m[3])
	if !ok || m[1][0] != '4' || m[2][0] == '0' {
		return Version{}, false
	}
	return Version{Scheme: RHCOSLegacy, Major: number(m[2][:1]), Minor: number(m[2][1:]), Built: built,
		rest: []int{number(m[3][:8]), number(m[3][8:]), number(m[4])}, release: m[1][:1] + "." + m[1][1:] + ".0"}, true
}

// readMarket: 418.94.20250122, 419.6.20250523, as Azure's marketplace has them. The
// second field lost the major where it was a field of its own: that was 9.
func readMarket(t string) (Version, bool) {
	m := rhcosMarket.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	os := m[2]
	if len(os) == 1 {
		os = "9" + os
	}
	built, ok := day(m[3])
	if !ok || os[0] == '0' {
		return Version{}, false
	}
	return Version{Scheme: RHCOSMarket, Major: number(os[:1]), Minor: number(os[1:]), Built: built, rest: []int{number(m[3])}, release: m[1][:1] + "." + m[1][1:] + ".0"}, true
}

func readRHCOS(t string) (Version, bool) {
	m := rhcosNew.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	built, ok := day(m[3])
	if !ok {
		return Version{}, false
	}
	clock := 0
	if len(m[3]) == 12 {
		clock = number(m[3][8:])
	}
	return Version{Scheme: RHCOS, Major: number(m[1]), Minor: number(m[2]), Built: built, rest: []int{number(m[3][:8]), clock, number(m[4])}}, true
}

func readFCOS(t string) (Version, bool) {
	m := fcos.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	built, ok := day(m[2])
	return Version{Scheme: FCOS, Major: number(m[1]), Built: built, rest: []int{number(m[2]), number(m[3]), number(m[4])}}, ok
}

func readAmazon(t string) (Version, bool) {
	m := amazon.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	built, ok := day(m[3])
	return Version{Scheme: Amazon, Major: number(m[1]), Minor: number(m[2]), Built: built, rest: []int{number(m[3]), number(m[4])}}, ok
}

func readUbuntu(t string) (Version, bool) {
	m := ubuntu.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	v := Version{Scheme: Ubuntu, Major: number(m[1]), Minor: number(m[2])}
	if m[3] == "" {
		return v, true
	}
	built, ok := day(m[3])
	v.Built, v.rest = built, []int{number(m[3]), number(m[4])}
	return v, ok
}

func readDate(t string) (Version, bool) {
	m := date.FindStringSubmatch(t)
	if m == nil {
		return Version{}, false
	}
	built, ok := day(m[1])
	return Version{Scheme: Date, Built: built, rest: []int{number(m[1]), number(m[2])}}, ok
}

// flatcarFrom is the first number from which three numbers are a version of
// Flatcar: it counts days.
const flatcarFrom = 1000

func readSemVer(t string) (Version, bool) {
	if !plain.MatchString(t) {
		return Version{}, false
	}
	s, err := semver.NewVersion(t)
	if err != nil {
		return Version{}, false
	}
	v := Version{Scheme: SemVer, Major: int(s.Major()), Minor: int(s.Minor()), rest: []int{int(s.Patch())}, sem: s}
	if v.Major >= flatcarFrom {
		v.Scheme = Flatcar
	}
	return v, true
}

// Release is the platform release that an OS version holds within itself, as
// legacy RHEL CoreOS versions do.
func (v Version) Release() (Version, bool) {
	if v.release == "" {
		return Version{}, false
	}
	r, err := Parse(v.release)
	return r, err == nil
}

// MajorMinor is the version to its second number, for example 1.36.
func (v Version) MajorMinor() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) String() string { return v.Text }

// Compare is negative if v is older than o, positive if it is newer, 0 if both
// are the same. Versions of two schemes are compared only where they mean the
// same (both ways to write RHEL CoreOS); else it is an error.
func (v Version) Compare(o Version) (int, error) {
	if v.Scheme == "" || o.Scheme == "" {
		return 0, fmt.Errorf("versions %q and %q cannot be compared: one was never read", v.Text, o.Text)
	}
	if v.family() != o.family() {
		return 0, fmt.Errorf("versions %q (%s) and %q (%s) cannot be compared", v.Text, v.Scheme, o.Text, o.Scheme)
	}
	if v.sem != nil && o.sem != nil {
		return v.sem.Compare(o.sem), nil
	}
	if c := cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor)); c != 0 {
		return c, nil
	}
	for i := range max(len(v.rest), len(o.rest)) {
		if c := cmp.Compare(v.at(i), o.at(i)); c != 0 {
			return c, nil
		}
	}
	return 0, nil
}

func (v Version) at(i int) int {
	if i < len(v.rest) {
		return v.rest[i]
	}
	return 0
}

// family of schemes that are compared with each other.
func (v Version) family() Scheme {
	if v.Scheme == RHCOSLegacy || v.Scheme == RHCOSMarket {
		return RHCOS
	}
	return v.Scheme
}
