"""Several methods on one federation.

``contenders``    recipes brought onto the first one's federation
``lineup``        in which order, kept beside their runs
``comparison``    their runs over seeds, paired
``scores``        the columns of a comparison, and which figure of a run stands in each
``estimates``     a mean over seeds and how far it can be trusted
``ranking``       a row each, and differences from the first one
``standing``      who leads by a figure, and whether that is real
``coinciding``    methods that turn out to be the same
``verdict``       what it all comes to, in two or three sentences
``consequences``  of those what a lead costs, and who pays for it
``amounts``       numbers as people read them
"""
