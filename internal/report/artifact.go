package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Major and Minor are the version of the OCP Test and Validation output
// specification (opencomputeproject/ocp-diag-core, json_spec) that this package
// writes and reads.
const (
	Major = 2
	Minor = 0
)

// Status says how a test run or a test step ended (spec: TestStatus).
type Status string

// The statuses of the specification.
const (
	StatusComplete Status = "COMPLETE" // ran to its normal end
	StatusError    Status = "ERROR"    // broke before its normal end
	StatusSkip     Status = "SKIP"     // did not run, or was cut short on purpose
)

// Result is the outcome of a whole run (spec: TestResult).
type Result string

// The results of the specification.
const (
	ResultPass          Result = "PASS"
	ResultFail          Result = "FAIL"
	ResultNotApplicable Result = "NOT_APPLICABLE"
)

// Legal reports whether the specification allows a run to end with this pair:
// COMPLETE with PASS or FAIL, ERROR or SKIP with NOT_APPLICABLE.
func Legal(s Status, r Result) bool {
	switch s {
	case StatusComplete:
		return r == ResultPass || r == ResultFail
	case StatusError, StatusSkip:
		return r == ResultNotApplicable
	}
	return false
}

// DiagnosisType is the judgement of one diagnosis.
type DiagnosisType string

// The diagnosis types of the specification.
const (
	DiagnosisPass    DiagnosisType = "PASS"
	DiagnosisFail    DiagnosisType = "FAIL"
	DiagnosisUnknown DiagnosisType = "UNKNOWN"
)

// Severity is the level of a log line.
type Severity string

// The severities of the specification.
const (
	Debug   Severity = "DEBUG"
	Info    Severity = "INFO"
	Warning Severity = "WARNING"
	Failed  Severity = "ERROR"
	Fatal   Severity = "FATAL"
)

// ValidatorType is how a [Validator] compares a measured value (left side) with
// its own (right side).
type ValidatorType string

// The numeric comparisons of the specification; it has others for strings and sets.
const (
	Equal              ValidatorType = "EQUAL"
	NotEqual           ValidatorType = "NOT_EQUAL"
	LessThan           ValidatorType = "LESS_THAN"
	LessThanOrEqual    ValidatorType = "LESS_THAN_OR_EQUAL"
	GreaterThan        ValidatorType = "GREATER_THAN"
	GreaterThanOrEqual ValidatorType = "GREATER_THAN_OR_EQUAL"
)

// RunStart describes the test program and the machine it ran on (spec: testRunStart).
type RunStart struct {
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	CommandLine string         `json:"commandLine"`
	Parameters  map[string]any `json:"parameters"`
	DUT         DUT            `json:"dutInfo"`
	Metadata    map[string]any `json:"metadata,omitempty"`
}

// DUT is the device under test: one machine.
type DUT struct {
	ID        string         `json:"dutInfoId"`
	Name      string         `json:"name,omitempty"`
	Platforms []PlatformInfo `json:"platformInfos,omitempty"`
	Software  []SoftwareInfo `json:"softwareInfos,omitempty"`
	Hardware  []HardwareInfo `json:"hardwareInfos,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// Keys of the metadata of a [DUT], of a run that a farm's server collected: the
// SMBIOS strings as the kernel shows them below /sys/class/dmi/id.
const (
	MetaUUID        = "uuid"         // product_uuid, lower case
	MetaSerial      = "serial"       // product_serial
	MetaBoardSerial = "board_serial" // board_serial
)

// PlatformInfo is one free-form property of the machine.
type PlatformInfo struct {
	Info string `json:"info"`
}

// SoftwareInfo names one piece of software; Type is UNSPECIFIED, FIRMWARE,
// SYSTEM or APPLICATION.
type SoftwareInfo struct {
	ID       string `json:"softwareInfoId"`
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"`
	Type     string `json:"softwareType,omitempty"`
}

// HardwareInfo names one part of the machine; ID is what other artifacts refer
// to (mkp2pimg uses the BDF for PCI devices).
type HardwareInfo struct {
	ID           string `json:"hardwareInfoId"`
	Name         string `json:"name"`
	Location     string `json:"location,omitempty"`
	PartType     string `json:"partType,omitempty"`
	PartNumber   string `json:"partNumber,omitempty"`
	SerialNumber string `json:"serialNumber,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	Version      string `json:"version,omitempty"`
	Revision     string `json:"revision,omitempty"`
}

// Subcomponent narrows an artifact to a part of the hardware it names.
type Subcomponent struct {
	Name     string `json:"name"`
	Type     string `json:"type,omitempty"`
	Location string `json:"location,omitempty"`
}

// RunEnd closes a run.
type RunEnd struct {
	Status Status `json:"status"`
	Result Result `json:"result"`
}

// Measurement is one measured value with its unit and the limits it was held to.
// Value is a string, a bool or a finite number.
type Measurement struct {
	Name         string         `json:"name"`
	Value        any            `json:"value"`
	Unit         string         `json:"unit,omitempty"`
	Validators   []Validator    `json:"validators,omitempty"`
	HardwareID   string         `json:"hardwareInfoId,omitempty"`
	Subcomponent *Subcomponent  `json:"subcomponent,omitempty"`
	Metadata     map[string]any `json:"metadata,omitempty"`
}

// Validator is a limit that travels with the number it judges.
type Validator struct {
	Name  string        `json:"name,omitempty"`
	Type  ValidatorType `json:"type"`
	Value any           `json:"value"`
}

// Diagnosis is one judgement; Verdict is a short stable id.
type Diagnosis struct {
	Verdict      string        `json:"verdict"`
	Type         DiagnosisType `json:"type"`
	Message      string        `json:"message,omitempty"`
	HardwareID   string        `json:"hardwareInfoId,omitempty"`
	Subcomponent *Subcomponent `json:"subcomponent,omitempty"`
}

// Error says that the test itself broke (a part that fails is a [Diagnosis]).
type Error struct {
	Symptom string `json:"symptom"`
	Message string `json:"message,omitempty"`
}

// Log is one line of narration.
type Log struct {
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// File points at a file that the run produced; URI is a file:// or other URL.
type File struct {
	DisplayName string `json:"displayName"`
	URI         string `json:"uri"`
	Description string `json:"description,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	IsSnapshot  bool   `json:"isSnapshot"`
}

// Extension carries structured data of ours; Content is a JSON object.
type Extension struct {
	Name    string          `json:"name"`
	Content json.RawMessage `json:"content"`
}

// SeriesStart opens a series of measurements of one quantity.
type SeriesStart struct {
	ID           string         `json:"measurementSeriesId"`
	Name         string         `json:"name"`
	Unit         string         `json:"unit,omitempty"`
	Validators   []Validator    `json:"validators,omitempty"`
	HardwareID   string         `json:"hardwareInfoId,omitempty"`
	Subcomponent *Subcomponent  `json:"subcomponent,omitempty"`
	Metadata     map[string]any `json:"metadata,omitempty"`
}

// SeriesElement is one value of a series.
type SeriesElement struct {
	ID        string         `json:"measurementSeriesId"`
	Index     int            `json:"index"`
	Value     any            `json:"value"`
	Timestamp time.Time      `json:"timestamp"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// SeriesEnd closes a series; TotalCount is the number of its elements.
type SeriesEnd struct {
	ID         string `json:"measurementSeriesId"`
	TotalCount int    `json:"totalCount"`
}

// schemaVersion is the first artifact of every report.
type schemaVersion struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
}

// runArtifact holds exactly one of its fields (spec: testRunArtifact).
type runArtifact struct {
	Start *RunStart `json:"testRunStart,omitempty"`
	End   *RunEnd   `json:"testRunEnd,omitempty"`
	Log   *Log      `json:"log,omitempty"`
	Error *Error    `json:"error,omitempty"`
}

type stepStart struct {
	Name string `json:"name"`
}

type stepEnd struct {
	Status Status `json:"status"`
}

// stepArtifact holds its step's id and exactly one other field (spec: testStepArtifact).
type stepArtifact struct {
	StepID        string         `json:"testStepId"`
	Start         *stepStart     `json:"testStepStart,omitempty"`
	End           *stepEnd       `json:"testStepEnd,omitempty"`
	Measurement   *Measurement   `json:"measurement,omitempty"`
	SeriesStart   *SeriesStart   `json:"measurementSeriesStart,omitempty"`
	SeriesElement *SeriesElement `json:"measurementSeriesElement,omitempty"`
	SeriesEnd     *SeriesEnd     `json:"measurementSeriesEnd,omitempty"`
	Diagnosis     *Diagnosis     `json:"diagnosis,omitempty"`
	Error         *Error         `json:"error,omitempty"`
	Log           *Log           `json:"log,omitempty"`
	File          *File          `json:"file,omitempty"`
	Extension     *Extension     `json:"extension,omitempty"`
}

// artifact is one line of a report.
type artifact struct {
	Schema    *schemaVersion `json:"schemaVersion,omitempty"`
	Run       *runArtifact   `json:"testRunArtifact,omitempty"`
	Step      *stepArtifact  `json:"testStepArtifact,omitempty"`
	Sequence  int            `json:"sequenceNumber"`
	Timestamp time.Time      `json:"timestamp"`
}

// present counts the true values: an artifact is one of several kinds, never two.
func present(set ...bool) int {
	n := 0
	for _, b := range set {
		if b {
			n++
		}
	}
	return n
}

// validate reports what in the artifact breaks the specification, looking at
// this line alone.
func (a *artifact) validate() error {
	if present(a.Schema != nil, a.Run != nil, a.Step != nil) != 1 {
		return fmt.Errorf("a line holds exactly one of schemaVersion, testRunArtifact and testStepArtifact")
	}
	if a.Sequence < 0 {
		return fmt.Errorf("sequenceNumber %d is negative", a.Sequence)
	}
	if a.Timestamp.IsZero() {
		return fmt.Errorf("timestamp is missing")
	}
	switch {
	case a.Run != nil:
		return a.Run.validate()
	case a.Step != nil:
		return a.Step.validate()
	}
	if a.Schema.Major != Major {
		return fmt.Errorf("schemaVersion %d.%d: this program reads %d.x", a.Schema.Major, a.Schema.Minor, Major)
	}
	return nil
}

func (r *runArtifact) validate() error {
	if present(r.Start != nil, r.End != nil, r.Log != nil, r.Error != nil) != 1 {
		return fmt.Errorf("a testRunArtifact holds exactly one of testRunStart, testRunEnd, log and error")
	}
	switch {
	case r.Start != nil:
		return r.Start.validate()
	case r.End != nil && !Legal(r.End.Status, r.End.Result):
		return fmt.Errorf("testRunEnd: %s with %s is not a legal pair", r.End.Status, r.End.Result)
	case r.Log != nil:
		return r.Log.validate()
	case r.Error != nil:
		return r.Error.validate()
	}
	return nil
}

func (s *RunStart) validate() error {
	if s.Name == "" || s.Version == "" || s.Parameters == nil {
		return fmt.Errorf("testRunStart needs name, version and parameters")
	}
	if s.DUT.ID == "" {
		return fmt.Errorf("testRunStart: dutInfo has no dutInfoId")
	}
	return nil
}

func (s *stepArtifact) validate() error {
	if s.StepID == "" {
		return fmt.Errorf("a testStepArtifact has no testStepId")
	}
	if present(s.Start != nil, s.End != nil, s.Measurement != nil, s.SeriesStart != nil, s.SeriesElement != nil,
		s.SeriesEnd != nil, s.Diagnosis != nil, s.Error != nil, s.Log != nil, s.File != nil, s.Extension != nil) != 1 {
		return fmt.Errorf("step %s: a testStepArtifact holds exactly one artifact besides its testStepId", s.StepID)
	}
	if err := s.validateKind(); err != nil {
		return fmt.Errorf("step %s: %w", s.StepID, err)
	}
	return nil
}

func (s *stepArtifact) validateKind() error {
	switch {
	case s.Start != nil && s.Start.Name == "":
		return fmt.Errorf("testStepStart has no name")
	case s.End != nil && !slices.Contains([]Status{StatusComplete, StatusError, StatusSkip}, s.End.Status):
		return fmt.Errorf("testStepEnd: unknown status %q", s.End.Status)
	case s.Measurement != nil:
		if s.Measurement.Name == "" {
			return fmt.Errorf("measurement has no name")
		}
		return validateValue("measurement "+s.Measurement.Name, s.Measurement.Value, s.Measurement.Validators)
	case s.SeriesStart != nil:
		if s.SeriesStart.ID == "" || s.SeriesStart.Name == "" {
			return fmt.Errorf("measurementSeriesStart needs measurementSeriesId and name")
		}
	case s.SeriesElement != nil:
		if s.SeriesElement.ID == "" || s.SeriesElement.Timestamp.IsZero() {
			return fmt.Errorf("measurementSeriesElement needs measurementSeriesId and timestamp")
		}
		return validateValue("measurementSeriesElement", s.SeriesElement.Value, nil)
	case s.SeriesEnd != nil && s.SeriesEnd.ID == "":
		return fmt.Errorf("measurementSeriesEnd has no measurementSeriesId")
	case s.Diagnosis != nil:
		if s.Diagnosis.Verdict == "" || !slices.Contains([]DiagnosisType{DiagnosisPass, DiagnosisFail, DiagnosisUnknown}, s.Diagnosis.Type) {
			return fmt.Errorf("diagnosis %q: verdict is empty or type %q is unknown", s.Diagnosis.Verdict, s.Diagnosis.Type)
		}
	case s.Error != nil:
		return s.Error.validate()
	case s.Log != nil:
		return s.Log.validate()
	case s.File != nil && (s.File.DisplayName == "" || s.File.URI == ""):
		return fmt.Errorf("file needs displayName and uri")
	case s.Extension != nil && (s.Extension.Name == "" || !isObject(s.Extension.Content)):
		return fmt.Errorf("extension %q: name is empty or content is not an object", s.Extension.Name)
	}
	return nil
}

func (l *Log) validate() error {
	if !slices.Contains([]Severity{Debug, Info, Warning, Failed, Fatal}, l.Severity) {
		return fmt.Errorf("log: unknown severity %q", l.Severity)
	}
	return nil
}

func (e *Error) validate() error {
	if e.Symptom == "" {
		return fmt.Errorf("error has no symptom")
	}
	return nil
}

// validateValue checks the JSON type of a value and of the limits beside it.
func validateValue(what string, value any, validators []Validator) error {
	if !isScalar(value) {
		return fmt.Errorf("%s: value %v is not a string, boolean or number", what, value)
	}
	for _, v := range validators {
		if v.Type == "" || v.Value == nil {
			return fmt.Errorf("%s: a validator needs type and value", what)
		}
	}
	return nil
}

func isScalar(v any) bool {
	switch v.(type) {
	case string, bool, json.Number, float64, float32, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return true
	}
	return false
}

func isObject(raw json.RawMessage) bool {
	return len(raw) > 0 && raw[0] == '{'
}
