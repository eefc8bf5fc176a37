package componentversion

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

// OSScheme is how a version is written.
type OSScheme string

// Known schemes.
const (
	SemVer      OSScheme = "semver"
	RHCOS       OSScheme = "rhcos"
	RHCOSLegacy OSScheme = "rhcos-legacy"
	RHCOSMarket OSScheme = "rhcos-marketplace"
	FCOS        OSScheme = "fcos"
	Flatcar     OSScheme = "flatcar"
	Amazon      OSScheme = "amazon-linux"
	Ubuntu      OSScheme = "ubuntu"
	Date        OSScheme = "date"
)

// OSVersion is a parsed version of an operating system or boot image.
type OSVersion struct {
	// Text as it was given.
	Text   string
	Scheme OSScheme
	// Major and Minor of the operating system, or of the release (SemVer). Zero
	// for a bare build date.
	Major, Minor int
	// Built is the day of the build, zero if the scheme does not say.
	Built time.Time
	// rest has the numbers after Major and Minor, in order.
	rest []int
	// release of the platform, which a legacy RHEL CoreOS version contains.
	release string
	sem     *semver.Version
}

// longest is the maximum length of a version in bytes.
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

// ParseOS parses a version in any of the schemes.
func ParseOS(text string) (OSVersion, error) {
	t := strings.TrimSpace(text)
	if t == "" || len(t) > longest {
		return OSVersion{}, unreadable(text)
	}
	for _, read := range []func(string) (OSVersion, bool){readLegacy, readMarket, readRHCOS, readFCOS, readAmazon, readUbuntu, readDate, readSemVer} {
		if v, ok := read(t); ok {
			v.Text = t
			return v, nil
		}
	}
	return OSVersion{}, unreadable(text)
}

func unreadable(version string) error {
	return fmt.Errorf("version %q is of no known scheme (4.19.3, 9.6.20251023-0, 418.94.202501221327-0, 38.20230918.3.0, 3815.2.0, 2023.6.20241010, 24.04.20250115, 20250115)", text.Truncate(version, longest))
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // the patterns let only short digits through
	return n
}

// day parses the day of a build; ok is false for a text that is not a date.
func day(s string) (time.Time, bool) {
	d, err := time.Parse("20060102", s[:8])
	return d, err == nil
}

// readLegacy: 48.84.202208021106-0, 418.94.202501221327-0. The first field is
// the release without its dot, the second the RHEL version.
func readLegacy(t string) (OSVersion, bool) {
	m := rhcosLegacy.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	built, ok := day(m[3])
	if !ok || m[1][0] != '4' || m[2][0] == '0' {
		return OSVersion{}, false
	}
	return OSVersion{Scheme: RHCOSLegacy, Major: number(m[2][:1]), Minor: number(m[2][1:]), Built: built,
		rest: []int{number(m[3][:8]), number(m[3][8:]), number(m[4])}, release: m[1][:1] + "." + m[1][1:] + ".0"}, true
}

// readMarket: 418.94.20250122, 419.6.20250523, the form of Azure's marketplace. A second
// field of one digit is the minor of RHEL 9: that form omits the major.
func readMarket(t string) (OSVersion, bool) {
	m := rhcosMarket.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	os := m[2]
	if len(os) == 1 {
		os = "9" + os
	}
	built, ok := day(m[3])
	if !ok || os[0] == '0' {
		return OSVersion{}, false
	}
	return OSVersion{Scheme: RHCOSMarket, Major: number(os[:1]), Minor: number(os[1:]), Built: built, rest: []int{number(m[3])}, release: m[1][:1] + "." + m[1][1:] + ".0"}, true
}

func readRHCOS(t string) (OSVersion, bool) {
	m := rhcosNew.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	built, ok := day(m[3])
	if !ok {
		return OSVersion{}, false
	}
	clock := 0
	if len(m[3]) == 12 {
		clock = number(m[3][8:])
	}
	return OSVersion{Scheme: RHCOS, Major: number(m[1]), Minor: number(m[2]), Built: built, rest: []int{number(m[3][:8]), clock, number(m[4])}}, true
}

func readFCOS(t string) (OSVersion, bool) {
	m := fcos.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	built, ok := day(m[2])
	return OSVersion{Scheme: FCOS, Major: number(m[1]), Built: built, rest: []int{number(m[2]), number(m[3]), number(m[4])}}, ok
}

func readAmazon(t string) (OSVersion, bool) {
	m := amazon.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	built, ok := day(m[3])
	return OSVersion{Scheme: Amazon, Major: number(m[1]), Minor: number(m[2]), Built: built, rest: []int{number(m[3]), number(m[4])}}, ok
}

func readUbuntu(t string) (OSVersion, bool) {
	m := ubuntu.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	v := OSVersion{Scheme: Ubuntu, Major: number(m[1]), Minor: number(m[2])}
	if m[3] == "" {
		return v, true
	}
	built, ok := day(m[3])
	v.Built, v.rest = built, []int{number(m[3]), number(m[4])}
	return v, ok
}

func readDate(t string) (OSVersion, bool) {
	m := date.FindStringSubmatch(t)
	if m == nil {
		return OSVersion{}, false
	}
	built, ok := day(m[1])
	return OSVersion{Scheme: Date, Built: built, rest: []int{number(m[1]), number(m[2])}}, ok
}

// flatcarFrom is the first number from which three numbers are a version of
// Flatcar: it counts days.
const flatcarFrom = 1000

func readSemVer(t string) (OSVersion, bool) {
	if !plain.MatchString(t) {
		return OSVersion{}, false
	}
	s, err := semver.NewVersion(t)
	if err != nil {
		return OSVersion{}, false
	}
	v := OSVersion{Scheme: SemVer, Major: int(s.Major()), Minor: int(s.Minor()), rest: []int{int(s.Patch())}, sem: s}
	if v.Major >= flatcarFrom {
		v.Scheme = Flatcar
	}
	return v, true
}

// Release is the platform release within an OS version; only legacy RHEL CoreOS versions
// contain one.
func (v OSVersion) Release() (OSVersion, bool) {
	if v.release == "" {
		return OSVersion{}, false
	}
	r, err := ParseOS(v.release)
	return r, err == nil
}

// OnlyIgnition3 reports whether an OS reads no configurations of Ignition 2: Fedora CoreOS never
// did, RHEL CoreOS does not from 4.6. Flatcar reads both.
func (v OSVersion) OnlyIgnition3() bool {
	const firstMinor = 6
	release, ok := v.Release()
	return v.Scheme == FCOS || v.family() == RHCOS && (!ok || release.Minor >= firstMinor)
}

// MajorMinor is the version to its second number, for example 1.36.
func (v OSVersion) MajorMinor() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v OSVersion) String() string { return v.Text }

// Compare is negative if v is older than o, positive if it is newer, 0 if both
// are the same. Versions of two schemes are an error, except where both schemes write the
// same version (RHEL CoreOS).
func (v OSVersion) Compare(o OSVersion) (int, error) {
	if v.Scheme == "" || o.Scheme == "" {
		return 0, fmt.Errorf("versions %q and %q cannot be compared: one was never parsed", v.Text, o.Text)
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

func (v OSVersion) at(i int) int {
	if i < len(v.rest) {
		return v.rest[i]
	}
	return 0
}

// family of schemes that are compared with each other.
func (v OSVersion) family() OSScheme {
	if v.Scheme == RHCOSLegacy || v.Scheme == RHCOSMarket {
		return RHCOS
	}
	return v.Scheme
}
