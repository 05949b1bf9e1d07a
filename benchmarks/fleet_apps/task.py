"""The job as a task of fedskew: takes the place of task.py in an app of `fedskew flower new`."""

import job

from fedskew.runtime.flower.task import ClientData, FleetSettings, Task


def load_data(client: int, settings: FleetSettings) -> ClientData:
    """The examples of this client."""
    return ClientData(*job.data(client))


def build_model(settings: FleetSettings):
    """The network."""
    return job.build()


task = Task(10, load_data, build_model)
