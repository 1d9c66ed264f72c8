package images

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	noAssertion = "NOASSERTION"
	imageID     = "image"
)

// bom writes the SPDX 2.3 bill of materials of the image: the kernel and the
// initramfs are what the document describes, inputs and Go modules are what
// they contain or were made with. Same manifest, same bytes: the document's
// name space is a digest of its content.
func bom(m *Manifest, artifacts []Artifact) ([]byte, error) {
	doc := &spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   fmt.Sprintf("%s-%s-driver-%s-linux-%s", m.Product.Name, m.Product.Version, m.Driver, m.Kernel),
		CreationInfo: &spdx.CreationInfo{
			Created:  time.Unix(m.SourceDateEpoch, 0).UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: m.Product.Name + "-" + m.Product.Version}},
		},
	}
	image := newPackage(imageID, m.Product.Name+" image", m.Product.Version)
	image.PrimaryPackagePurpose = "OPERATING-SYSTEM"
	image.PackageComment = fmt.Sprintf("NVIDIA driver %s, Linux %s, built with %s", m.Driver, m.Kernel, m.Go)
	doc.Packages = []*spdx.Package{image}
	doc.Relationships = []*spdx.Relationship{relate("DOCUMENT", "DESCRIBES", imageID)}

	for i, a := range artifacts {
		p := newPackage(fmt.Sprintf("artifact-%d", i+1), a.Name, m.Product.Version)
		p.PackageFileName = a.Name
		p.PrimaryPackagePurpose = "FILE"
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: a.SHA256}}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relate(imageID, "CONTAINS", string(p.PackageSPDXIdentifier)))
	}
	for i, in := range m.Inputs {
		p := inputPackage(fmt.Sprintf("input-%d", i+1), in)
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, inputRelation(string(p.PackageSPDXIdentifier), in))
		doc.OtherLicenses = append(doc.OtherLicenses, licenceRefs(p.PackageLicenseDeclared)...)
	}
	for i, mod := range m.GoModules {
		p := newPackage(fmt.Sprintf("go-%d", i+1), mod.Path, mod.Version)
		p.PackageExternalReferences = purl("golang/"+mod.Path, mod.Version, "")
		p.PackageSourceInfo = "go.sum " + mod.Sum
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relate(imageID, "CONTAINS", string(p.PackageSPDXIdentifier)))
	}
	doc.OtherLicenses = uniqueLicences(doc.OtherLicenses)

	content, err := encode(doc)
	if err != nil {
		return nil, err
	}
	doc.DocumentNamespace = fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", doc.DocumentName, sha256.Sum256(content))
	return encode(doc)
}

func encode(doc *spdx.Document) ([]byte, error) {
	var b bytes.Buffer
	if err := spdxjson.Write(doc, &b, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	return b.Bytes(), nil
}

func newPackage(id, name, version string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier:     common.ElementID(id),
		PackageName:               name,
		PackageVersion:            version,
		PackageDownloadLocation:   noAssertion,
		IsFilesAnalyzedTagPresent: true,
		PackageLicenseConcluded:   noAssertion,
		PackageLicenseDeclared:    noAssertion,
		PackageCopyrightText:      noAssertion,
	}
}

func inputPackage(id string, in Input) *spdx.Package {
	p := newPackage(id, in.Name, in.Version)
	p.PackageFileName = path.Base(in.Origin)
	published := strings.Contains(in.Origin, "://")
	if published {
		p.PackageDownloadLocation = in.Origin
	}
	p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: in.SHA256}}
	p.PackageComment = "role: " + in.Role
	switch {
	case licenceExpression.MatchString(in.Licence):
		p.PackageLicenseDeclared = in.Licence
	case in.Licence != "":
		p.PackageLicenseComments = in.Licence
	}
	if published && strings.HasSuffix(in.Origin, ".deb") {
		p.PackageExternalReferences = purl("deb/debian/"+in.Name, in.Version, "?arch=amd64")
	}
	return p
}

// inputRelation tells whether an input is in the image, was compiled into it,
// or only helped to make it.
func inputRelation(id string, in Input) *spdx.Relationship {
	switch {
	case in.Role == "driver-source":
		return relate(imageID, "GENERATED_FROM", id)
	case in.Shipped:
		return relate(imageID, "CONTAINS", id)
	}
	return relate(id, "BUILD_TOOL_OF", imageID)
}

func relate(a, how, b string) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.MakeDocElementID("", a), Relationship: how, RefB: common.MakeDocElementID("", b)}
}

// purl makes the package URL reference that vulnerability scanners look up
// (https://github.com/package-url/purl-spec).
func purl(name, version, qualifiers string) []*spdx.PackageExternalReference {
	version = strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version)
	return []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager,
		RefType:  common.TypePackageManagerPURL,
		Locator:  "pkg:" + name + "@" + version + qualifiers,
	}}
}

// licenceExpression matches SPDX licence expressions (SPDX 2.3, annex D) by
// their characters and operators; names of licences are not looked up.
var licenceExpression = regexp.MustCompile(`^\(*[A-Za-z0-9.+-]+\)*( (AND|OR|WITH) \(*[A-Za-z0-9.+-]+\)*)*$`)

var licenceRef = regexp.MustCompile(`LicenseRef-[A-Za-z0-9.-]+`)

// licenceRefs declares the licences of an expression that are not on SPDX's
// list: a document must hold or point to the text of each.
func licenceRefs(expression string) []*spdx.OtherLicense {
	var list []*spdx.OtherLicense
	for _, id := range licenceRef.FindAllString(expression, -1) {
		list = append(list, &spdx.OtherLicense{
			LicenseIdentifier: id,
			LicenseName:       noAssertion,
			ExtractedText:     "See usr/share/doc/*/copyright of the packages that declare it.",
		})
	}
	return list
}

func uniqueLicences(list []*spdx.OtherLicense) []*spdx.OtherLicense {
	slices.SortFunc(list, func(a, b *spdx.OtherLicense) int {
		return strings.Compare(a.LicenseIdentifier, b.LicenseIdentifier)
	})
	return slices.CompactFunc(list, func(a, b *spdx.OtherLicense) bool { return a.LicenseIdentifier == b.LicenseIdentifier })
}
