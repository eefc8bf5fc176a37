package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// samplesFrom has the status page as it is at five moments of an update: its tests compare what
// the controller renders with these files.
const samplesFrom = "internal/controller/statuspage/testdata"

// samplesDir of the pages has them without what needs a controller.
const samplesDir = "samples"

// Ends of the names of pages that belong to a moment: the technician's, and the receipt.
const technicianEnd, receiptEnd = "-technician", "-receipt"

var (
	live      = regexp.MustCompile(`(?s)<noscript>.*?</noscript>\s*|<script\b.*?</script>\s*| data-events="[^"]*"`)
	filters   = regexp.MustCompile(`href="\?[^"#]*#`)
	answers   = regexp.MustCompile(`<a href="api/[^"]*">([^<]*)</a>`)
	receipts  = regexp.MustCompile(`<a href="receipt">([^<]*)</a>`)
	headlines = regexp.MustCompile(`<title>([^<]*)</title>`)
)

// sampleNames are the moments, in their order.
func sampleNames() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(samplesFrom, "*.html"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".html")
		if !strings.HasSuffix(name, technicianEnd) && !strings.HasSuffix(name, receiptEnd) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no page: run this in the root of the repository", samplesFrom)
	}
	slices.Sort(out)
	return out, nil
}

// writeSamples writes both pages of each moment, with their style.
func writeSamples(dir string) error {
	names, err := sampleNames()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, asset := range []string{"style.css", "favicon.svg"} {
		data, err := os.ReadFile(filepath.Join(samplesFrom, "..", "assets", asset))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, asset), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := errors.Join(writeSample(dir, name, name), writeSample(dir, name+technicianEnd, name)); err != nil {
			return err
		}
		if hasReceipt(name) {
			if err := writeSample(dir, name+receiptEnd, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasReceipt reports whether there is a sample of the receipt of a moment.
func hasReceipt(moment string) bool {
	_, err := os.Stat(filepath.Join(samplesFrom, moment+receiptEnd+".html"))
	return err == nil
}

func writeSample(dir, name, moment string) error {
	text, err := os.ReadFile(filepath.Join(samplesFrom, name+".html"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".html"), []byte(sample(string(text), moment)), 0o644)
}

// sample is a page without its script and without what a controller would answer.
func sample(text, moment string) string {
	text = live.ReplaceAllString(text, "")
	text = filters.ReplaceAllString(text, `href="#`)
	text = answers.ReplaceAllString(text, "$1")
	receipt := "$1"
	if hasReceipt(moment) {
		receipt = `<a href="` + moment + receiptEnd + `.html">$1</a>`
	}
	text = receipts.ReplaceAllString(text, receipt)
	return strings.NewReplacer(`href="technician"`, `href="`+moment+technicianEnd+`.html"`, `href="./"`, `href="`+moment+`.html"`).Replace(text)
}

// picturesMark is the line of a page of the documentation that becomes the samples in frames.
const picturesMark = "<!-- pictures of the status page -->"

// pictures are the samples in frames, which run no script. A frame of another origin than its page
// would get no style sheet from a directory. up leads from the page to the root.
func pictures(up string) (string, error) {
	names, err := sampleNames()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		for _, n := range []string{name, name + technicianEnd} {
			text, err := os.ReadFile(filepath.Join(samplesFrom, n+".html"))
			if err != nil {
				return "", err
			}
			title := n
			if m := headlines.FindSubmatch(text); m != nil {
				title = html.UnescapeString(string(m[1]))
			}
			fmt.Fprintf(&b, "<iframe class=\"%s\" src=\"%s\" title=\"%s\" loading=\"lazy\" sandbox=\"allow-same-origin\"></iframe>\n",
				frameClass(n), path.Join(up, samplesDir, n+".html"), html.EscapeString(title))
		}
	}
	return "<div>\n" + b.String() + "</div>\n", nil
}

func frameClass(name string) string {
	if strings.HasSuffix(name, technicianEnd) {
		return "sample small"
	}
	return "sample"
}
