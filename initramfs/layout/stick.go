package layout

// ReportPartition is the name in the partition table, and the label of the file
// system, of the partition of a stick that takes the reports.
const ReportPartition = "P2PREPORT"
