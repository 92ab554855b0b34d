# Three identities, none of which can do another's work:
#   nodes         pull images, write logs
#   coordinator   reads and writes checkpoints, signs URLs for them, asks for builds
#   build         runs environments' Dockerfiles, which anybody may have written: it pushes images, and has no right to
#                 the checkpoint bucket, nor to any secret

resource "google_service_account" "nodes" {
  account_id   = "${var.name}-nodes"
  display_name = "Hangar: the cluster's nodes"
}

resource "google_service_account" "coordinator" {
  account_id   = "${var.name}-coordinator"
  display_name = "Hangar: the coordinator"
}

resource "google_service_account" "build" {
  account_id   = "${var.name}-build"
  display_name = "Hangar: builds of environments' images"
}

# Nodes
resource "google_project_iam_member" "nodes" {
  for_each = toset([
    "roles/logging.logWriter",
    "roles/monitoring.metricWriter",
    "roles/monitoring.viewer",
    "roles/stackdriver.resourceMetadata.writer",
  ])

  project = var.project
  role    = each.value
  member  = google_service_account.nodes.member
}

resource "google_artifact_registry_repository_iam_member" "nodes" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.nodes.member
}

# The coordinator, as the Kubernetes service account hangar/hangar-coordinator: no key file anywhere.
resource "google_service_account_iam_member" "workload_identity" {
  service_account_id = google_service_account.coordinator.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[hangar/hangar-coordinator]"

  depends_on = [google_container_cluster.hangar]
}

resource "google_storage_bucket_iam_member" "coordinator" {
  bucket = google_storage_bucket.sessions.name
  role   = "roles/storage.objectUser"
  member = google_service_account.coordinator.member
}

# Signs URLs as itself, through iamcredentials.
resource "google_service_account_iam_member" "signs" {
  service_account_id = google_service_account.coordinator.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = google_service_account.coordinator.member
}

resource "google_project_iam_member" "coordinator_builds" {
  project = var.project
  role    = "roles/cloudbuild.builds.editor"
  member  = google_service_account.coordinator.member
}

# A build runs as the build's identity, which the coordinator may choose for it and never be.
resource "google_service_account_iam_member" "runs_builds_as" {
  service_account_id = google_service_account.build.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.coordinator.member
}

resource "google_artifact_registry_repository_iam_member" "coordinator" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.coordinator.member
}

# Builds
resource "google_artifact_registry_repository_iam_member" "build" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.build.member
}

resource "google_project_iam_member" "build_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.build.member
}
