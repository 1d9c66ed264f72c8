package remedy

// AnswerVersion is the version of the documents that are an [Answer].
const AnswerVersion = 1

// Answer is what was done with the ports between GPUs, as a document that
// schema.json describes.
type Answer struct {
	Version int `json:"version"`
	// Action is show, clear or restore.
	Action string `json:"action"`
	// DryRun says that Changes are what would have been written.
	DryRun bool `json:"dry_run"`
	// Ports are those of a [Plan]; none when registers are restored.
	Ports []Port `json:"ports"`
	// Changes are the registers that were written.
	Changes []Change `json:"changes"`
}

// NewAnswer returns an answer about the ports of a plan, and none of a zero one.
func NewAnswer(action string, dryRun bool, plan Plan) Answer {
	a := Answer{Version: AnswerVersion, Action: action, DryRun: dryRun, Ports: plan.Ports, Changes: []Change{}}
	if a.Ports == nil {
		a.Ports = []Port{}
	}
	return a
}

// Clearing returns the change that clears a port of a plan.
func (p Port) Clearing() Change { return Change{Port: p.Address, From: p.Before, To: p.After} }

// Restoring returns the change that takes that back.
func (p Port) Restoring() Change { return Change{Port: p.Address, From: p.After, To: p.Before} }
